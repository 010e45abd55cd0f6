"""What windows owe their subtask under every state backend: snapshots from another thread, divided, put together."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    CumulatingWindow,
    KeyedAggregate,
    MemoryBackend,
    OperatorState,
    SessionWindow,
    SlidingWindow,
    StateKind,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.state.windows.pane_rows import PaneRows
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

from tests.state_homes import BACKENDS, GROUPS, SAVEPOINT, SUMS, TestingBackend

KINDS = {
    "tumbling": TumblingWindow(10),
    "sliding": SlidingWindow(20, 10),
    "session": SessionWindow(10),
    "cumulating": CumulatingWindow(20, 10),
}
OPEN = 1000  # where the windows are that stay
IN_FILES = [name for name, choice in BACKENDS.items() if not isinstance(choice.backend, MemoryBackend)]


def windowed(kind: str) -> KeyedAggregate:
    return KeyedAggregate(SUMS.keys, SUMS.aggregates, Window(KINDS[kind], "at"))


def sums(*rows: tuple[int, int | None]) -> pa.Table:
    """A record with the value 1 for each (key, time), as sessions and other windows want it."""
    keys, times = [key for key, _ in rows], [at for _, at in rows]
    names = ["k", "__hash", "__pane", "__rows", "__p1", "__p2", "__p3"]
    hashes = [key * 0x9E3779B97F4A7C15 % 2**63 for key in keys]
    columns = (hashes, times, [1] * len(rows), [1] * len(rows), times, times)
    texts = pa.array([f"k{key}" for key in keys], pa.string())
    return pa.table([texts, *(pa.array(column, pa.int64()) for column in columns)], names=names)


def fired(*stores: Any) -> dict[str, set[tuple[int, int]]]:
    """Count and sum of each window that is open, by key."""
    found: dict[str, set[tuple[int, int]]] = {}
    for store in stores:
        for row in store.advance(10 * OPEN).to_pylist():
            found.setdefault(row["k"], set()).add((row["n"], row["total"]))
    return found


@pytest.fixture(params=BACKENDS)
def testing(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = TestingBackend(BACKENDS[request.param], tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_windows_change_while_their_snapshot_is_stored_on_another_thread(testing: TestingBackend, kind: str) -> None:
    everybody = list(range(2000))
    store: Any = testing.fresh(windowed(kind), sums((0, 0)).schema)
    store.merge(sums(*((key, OPEN) for key in everybody), *((key, 0) for key in everybody[:900])))
    for turn in range(1, 5):
        frozen = store.snapshot(SnapshotOrder(turn - 1))
        writer = testing.snapshots.writer(testing.choice, turn)
        states: list[OperatorState] = []
        thread = threading.Thread(target=lambda f=frozen, t=turn, w=writer, s=states: s.append(f.persist(t, w)))
        thread.start()
        store.advance(100 * turn)  # what was open near 0 fires, and is gone
        for start in range(0, len(everybody), 500):
            store.merge(sums(*((key, OPEN) for key in everybody[start : start + 500])))
        thread.join()
        frozen.release()
        if not isinstance(testing.choice.backend, MemoryBackend):  # where the leader would put bytes in
            again: Any = testing.restored(windowed(kind), states[-1])
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
    testing = TestingBackend(BACKENDS[backend], tmp_path)
    operator, everybody = windowed(kind), range(1200)
    groups_of = {key: key * 0x9E3779B97F4A7C15 % 2**63 % GROUPS for key in everybody}
    try:
        store: Any = testing.fresh(operator, sums((0, 0)).schema)
        store.merge(sums(*((key, OPEN) for key in everybody)))
        testing.stored(store, 1, SnapshotOrder())
        store.merge(sums((1, OPEN), (2, OPEN), (7, 20)))
        chained = testing.stored(store, 2, SnapshotOrder(1))
        store.advance(50)
        ranges = [range(7), range(7, GROUPS)]
        parts: list[Any] = [testing.restored(operator, chained, groups=range_, number=2) for range_ in ranges]
        states = []
        for number, (part, groups) in enumerate(zip(parts, ranges, strict=True)):
            assert part.advance(50).num_rows == (groups_of[7] in groups) * (
                2 if kind in {"sliding", "cumulating"} else 1
            )
            testing.stored(part, 3, SnapshotOrder(2), number)
            mine = [key for key in (3, 4, 5, 6) if groups_of[key] in groups]
            part.merge(sums(*((key, OPEN) for key in mine)))
            states.append(testing.stored(part, 4, SnapshotOrder(3), number))
        lengths = {len(state.increments) for state in (chained, *states)}
        assert lengths == ({0} if backend in {"filesystem", "rocksdb"} else {1})
        shared = [{file.checkpoint_id for file in state.files} for state in (chained, *states)]
        assert shared == ([{1, 2}, {3, 4}, {3, 4}] if backend == "rocksdb" else [set()] * 3)
        whole = testing.restored(operator, *states, number=4)
        savepoint = testing.stored(whole, 5, SAVEPOINT)
        assert savepoint.increments == ()
        assert testing.stored(whole, 6, SnapshotOrder(4)).increments == (), (
            "two subtasks' chains are none to go on with"
        )
        expected = {f"k{key}": {(2, 2) if 1 <= key <= 6 else (1, 1)} for key in everybody}
        for item in (testing.restored(operator, savepoint), whole):
            assert fired(item) == expected
    finally:
        testing.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
def test_every_backend_reads_every_backends_savepoints_of_windows(
    tmp_path: Path, source: str, target: str, kind: str
) -> None:
    first, other = (
        TestingBackend(BACKENDS[source], tmp_path / "one"),
        TestingBackend(BACKENDS[target], tmp_path / "other"),
    )
    operator, everybody = windowed(kind), range(100)
    try:
        before: Any = first.fresh(operator, sums((0, 0)).schema)
        before.merge(sums(*((key, OPEN) for key in everybody), (1, 0), (2, 40), (3, 40)))
        before.merge(sums((3, OPEN), (4, OPEN + 1) if kind == "session" else (4, OPEN)))
        assert before.advance(29).num_rows == (2 if kind in {"sliding", "cumulating"} else 1)
        savepoint = first.stored(before)
        assert savepoint.kind is StateKind.KEYED_STATE
        parts: list[Any] = [other.restored(operator, savepoint, groups=half) for half in (range(7), range(7, GROUPS))]
        again: Any = other.restored(operator, *(other.stored(part, 2, part=at) for at, part in enumerate(parts)))
        assert again.merge(sums((1, 0))).dropped == 1, "what had fired stays fired"
        for store in (before, again):
            assert fired(store) == {
                f"k{key}": {(2, 2) if key in {3, 4} else (1, 1)} | ({(1, 1)} if key in {2, 3} else set())
                for key in everybody
            }
    finally:
        first.close()
        other.close()


@pytest.mark.parametrize("groups", [[range(GROUPS)], [range(7), range(7, GROUPS)]])
@pytest.mark.parametrize("kind", KINDS)
def test_windows_formerly_in_memory_continue_in_a_database(tmp_path: Path, kind: str, groups: list[range]) -> None:
    """Checkpoints of earlier versions, which left windows in memory beside rocksdb: a full file and increments."""
    old, new = (
        TestingBackend(BACKENDS["filesystem, incremental"], tmp_path),
        TestingBackend(BACKENDS["rocksdb"], tmp_path),
    )
    operator, everybody = windowed(kind), range(1000)
    try:
        before: Any = old.fresh(operator, sums((0, 0)).schema)
        before.merge(sums(*((key, OPEN) for key in everybody), *((key, 0) for key in everybody[:300])))
        old.stored(before, 1, SnapshotOrder())
        before.merge(sums((1, OPEN), (2, OPEN), (7, 200)))
        before.advance(99)
        state = old.stored(before, 2, SnapshotOrder(1))
        assert (state.kind, len(state.increments)) == (StateKind.KEYED_STATE, 1)
        stores: list[Any] = [new.restored(operator, state, groups=group, number=2) for group in groups]
        for store in stores:
            assert store.advance(99).num_rows == 0, "what had fired and was purged does not come back"
            store.merge(sums())
        checkpoints = [new.stored(store, 3, SnapshotOrder(2), at) for at, store in enumerate(stores)]
        assert {checkpoint.kind for checkpoint in checkpoints} == {StateKind.ROCKSDB_STATE}
        expected = {f"k{key}": {(2, 2) if key in {1, 2} else (1, 1)} for key in everybody}
        expected["k7"] |= {(1, 1)}
        for found in (fired(*stores), fired(new.restored(operator, *checkpoints, number=3))):
            assert found == expected
    finally:
        old.close()
        new.close()


@pytest.mark.parametrize("kind", KINDS)
def test_other_backends_say_that_they_do_not_read_a_databases_windows(tmp_path: Path, kind: str) -> None:
    rocks, other = TestingBackend(BACKENDS["rocksdb"], tmp_path), TestingBackend(BACKENDS["filesystem"], tmp_path)
    try:
        store = rocks.fresh(windowed(kind), sums((0, 0)).schema)
        store.merge(sums((1, OPEN)))
        with pytest.raises(StateUnreadable, match="take a savepoint"):
            other.restored(windowed(kind), rocks.stored(store, 1, SnapshotOrder()))
    finally:
        rocks.close()
        other.close()


@pytest.mark.parametrize("kind", KINDS)
def test_records_without_a_time_are_emitted_with_the_late_ones(testing: TestingBackend, kind: str) -> None:
    store: Any = testing.fresh(windowed(kind), sums((0, 0)).schema)
    alone = store.merge(sums((1, None), (2, None)))
    store.merge(sums((1, OPEN)))
    store.advance(500)
    merged = store.merge(sums((1, None), (1, OPEN), (3, 0)))
    found = []
    for item in (alone, merged):
        late = {(row["k"], row["window_start"] is None, row["n"]) for row in item.late.to_pylist()}
        assert item.dropped == item.late.num_rows == len(late)
        assert all((row["window_start"] is None) == (row["window_end"] is None) for row in item.late.to_pylist())
        found.append(late)
    assert found == [{("k1", True, 1), ("k2", True, 1)}, {("k1", True, 1), ("k3", False, 1)}]
    assert {value for values in fired(store).values() for value in values} == {(2, 2)}


@pytest.mark.parametrize("kind", [SlidingWindow(500, 1), CumulatingWindow(500, 1)])
def test_a_window_visits_those_of_its_panes_that_have_rows(
    testing: TestingBackend, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Two of 500, for each of 500 windows."""
    visits: list[str] = []
    for owner, name in ((PaneState, "_rows_in"), (PaneRows, "among")):
        visited = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, of=visited, name=name: (visits.append(name), of(*args))[1])
    operator = KeyedAggregate(SUMS.keys, SUMS.aggregates, Window(kind, "at", allowed_lateness_ms=100))
    store: Any = testing.fresh(operator, sums((0, 0)).schema)
    store.merge(sums((1, 0)))
    assert {row["n"] for row in store.advance(50).to_pylist()} == {1}
    changed = store.merge(sums((1, 10))).changed.to_pylist()
    assert [row["n"] for row in changed] == [2] * 41, "windows that end after 10 and have fired at 50"
    found = store.advance(MAX_WATERMARK).to_pylist()
    while store.has_more:
        found += store.go_on().to_pylist()
    per_window = Counter(row["n"] for row in found)
    assert per_window == ({2: 449, 1: 10} if isinstance(kind, SlidingWindow) else {2: 449})
    assert len(visits) < 20
