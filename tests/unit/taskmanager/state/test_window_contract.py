"""What windows owe their subtask under every state backend: snapshots from another thread, divided, put together."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    KeyedAggregate,
    MemoryBackend,
    OperatorState,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)

from taskmanager.state.backend import make_backend
from taskmanager.task.program import SnapshotOrder

from .test_store_contract import BACKENDS, GROUPS, SAVEPOINT, SUMS, Bench

KINDS = {"tumbling": TumblingWindow(10), "sliding": SlidingWindow(20, 10), "session": SessionWindow(10)}
OPEN = 1000  # where the windows are that stay
IN_FILES = [name for name, choice in BACKENDS.items() if not isinstance(choice.backend, MemoryBackend)]


def windowed(kind: str) -> KeyedAggregate:
    return KeyedAggregate(SUMS.keys, SUMS.aggregates, Window(KINDS[kind], "at"))


def sums(*rows: tuple[int, int]) -> pa.Table:
    """A record with the value 1 for each (key, time), as sessions and other windows want it."""
    keys, times = [key for key, _ in rows], [at for _, at in rows]
    names = ["k", "__hash", "__pane", "__rows", "__p1", "__p2", "__p3"]
    hashes = [key * 0x9E3779B97F4A7C15 % 2**63 for key in keys]
    columns = (hashes, times, [1] * len(rows), [1] * len(rows), times, times)
    texts = pa.array([f"k{key}" for key in keys], pa.string())
    return pa.table([texts, *(pa.array(one, pa.int64()) for one in columns)], names=names)


def fired(*stores: Any) -> dict[str, set[tuple[int, int]]]:
    """Count and sum of each window that is open, by key."""
    found: dict[str, set[tuple[int, int]]] = {}
    for store in stores:
        for row in store.advance(10 * OPEN).to_pylist():
            found.setdefault(row["k"], set()).add((row["n"], row["total"]))
    return found


@pytest.fixture(params=BACKENDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = Bench(BACKENDS[request.param], tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_windows_change_while_their_snapshot_is_stored_on_another_thread(bench: Bench, kind: str) -> None:
    everybody = list(range(2000))
    store: Any = bench.fresh(windowed(kind), sums((0, 0)).schema)
    store.merge(sums(*((key, OPEN) for key in everybody), *((key, 0) for key in everybody[:900])))
    for turn in range(1, 5):
        frozen = store.snapshot(SnapshotOrder(turn - 1))
        writer = make_backend(bench.choice, str(bench.folder / "storage"), "a1-v-0").writer(turn)
        states: list[OperatorState] = []
        thread = threading.Thread(target=lambda f=frozen, t=turn, w=writer, s=states: s.append(f.persist(t, w)))
        thread.start()
        store.advance(100 * turn)  # what was open near 0 fires, and is gone
        for start in range(0, len(everybody), 500):
            store.merge(sums(*((key, OPEN) for key in everybody[start : start + 500])))
        thread.join()
        frozen.release()
        if not isinstance(bench.choice.backend, MemoryBackend):  # where the leader would put bytes in
            again: Any = bench.restored(windowed(kind), states[-1])
            assert again.advance(0 if turn == 1 else 100 * (turn - 1)).num_rows == 0, "what had fired stays fired"
            found = fired(again)
            assert len(found) == len(everybody)
            assert {value for values in found.values() for value in values} == {(turn, turn)} | (
                {(1, 1)} if turn == 1 else set()
            )
    assert {value for values in fired(store).values() for value in values} == {(5, 5)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", IN_FILES)
def test_chains_of_windows_can_be_divided_and_put_together(tmp_path: Path, backend: str, kind: str) -> None:
    """1 -> 2 -> 1 subtasks, from checkpoints that are increments where the backend makes them."""
    bench = Bench(BACKENDS[backend], tmp_path)
    operator, everybody = windowed(kind), range(1200)
    groups_of = {key: key * 0x9E3779B97F4A7C15 % 2**63 % GROUPS for key in everybody}
    try:
        store: Any = bench.fresh(operator, sums((0, 0)).schema)
        store.merge(sums(*((key, OPEN) for key in everybody)))
        bench.stored(store, 1, SnapshotOrder())
        store.merge(sums((1, OPEN), (2, OPEN), (7, 20)))
        chained = bench.stored(store, 2, SnapshotOrder(1))
        store.advance(50)
        ranges = [range(7), range(7, GROUPS)]
        parts: list[Any] = [bench.restored(operator, chained, groups=one, number=2) for one in ranges]
        states = []
        for number, (part, groups) in enumerate(zip(parts, ranges, strict=True)):
            assert part.advance(50).num_rows == (groups_of[7] in groups) * (2 if kind == "sliding" else 1)
            bench.stored(part, 3, SnapshotOrder(2), number)
            mine = [key for key in (3, 4, 5, 6) if groups_of[key] in groups]
            part.merge(sums(*((key, OPEN) for key in mine)))
            states.append(bench.stored(part, 4, SnapshotOrder(3), number))
        lengths = {len(one.increments) for one in (chained, *states)}
        assert lengths == ({0} if backend == "filesystem" else {1})
        whole = bench.restored(operator, *states, number=4)
        savepoint = bench.stored(whole, 5, SAVEPOINT)
        assert savepoint.increments == ()
        assert bench.stored(whole, 6, SnapshotOrder(4)).increments == (), "two subtasks' chains are none to go on with"
        expected = {f"k{key}": {(2, 2) if 1 <= key <= 6 else (1, 1)} for key in everybody}
        for one in (bench.restored(operator, savepoint), whole):
            assert fired(one) == expected
    finally:
        bench.close()
