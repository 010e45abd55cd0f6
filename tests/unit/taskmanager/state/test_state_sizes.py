"""Whatever an operator keeps, and wherever: its snapshot says whose it is and how large, and a limit names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    IntervalJoin,
    JoinSide,
    KeyedAggregate,
    MemoryBackend,
    StateBackend,
    SubtaskState,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.runtime.snapshot_figures import figures_of
from lockgate_taskmanager.state.backend import SnapshotWriter, make_backend
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.window_contents import WindowContents
from lockgate_taskmanager.state.factory import AggregateStores, DeduplicateStores, StoreFactory
from lockgate_taskmanager.state.join.join_spec import JoinSpec
from lockgate_taskmanager.state.rows.row_store import RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.effects import Acknowledge
from lockgate_taskmanager.task.program import BY_ITSELF, SnapshotTooLarge

from tests.state_homes import BACKENDS, GROUPS, SUMS

Feed = Callable[[int, int], None]  # adds keys first .. end - 1
Freeze = Callable[[], Sequence[FrozenStore]]
WINDOW = Window(TumblingWindow(10), "at")
LONG = "x" * 50


def columns(first: int, end: int, **more: Any) -> pa.Table:
    """Keys that are hard to compress, with their hashes."""
    count = end - first
    hashes = [number * 0x9E3779B97F4A7C15 % 2**63 for number in range(first, end)]
    keys = [f"{value:x}{value * 31 % 2**61:x}" for value in hashes]
    values = {name: [value] * count for name, value in more.items()}
    return pa.table({"k": keys, "__hash": hashes, **values})


def aggregate(factory: StoreFactory, window: Window | None) -> tuple[Feed, Freeze, Callable[[], None]]:
    more = {"__rows": 1, "__p1": 1} if window is None else {"__pane": 10, "__rows": 1, "__p1": 1}
    spec = StoreSpec("op", KeyedAggregate(SUMS.keys, SUMS.aggregates, window), GROUPS, range(GROUPS))
    store = AggregateStores(factory, spec).fresh(columns(0, 1, **more).schema)
    return (
        lambda first, end: _merged(store, columns(first, end, **more)),
        lambda: (store.snapshot(BY_ITSELF),),
        store.close,
    )


def _merged(store: Any, table: pa.Table) -> None:
    store.merge(table)


def deduplicate(factory: StoreFactory) -> tuple[Feed, Freeze, Callable[[], None]]:
    stores = DeduplicateStores(factory, RowSpec("op", "deduplicate", ("k",), GROUPS, range(GROUPS)), 0)
    store = stores.fresh(columns(0, 1).schema)
    store.tick(1)
    return lambda first, end: _merged(store, columns(first, end)), lambda: (store.snapshot(BY_ITSELF),), store.close


def join(factory: StoreFactory) -> tuple[Feed, Freeze, Callable[[], None]]:
    operator = IntervalJoin(("k",), ("k",), "at", "at", -5, 10)
    store = factory.join(JoinSpec("op", operator, GROUPS, range(GROUPS)))

    def feed(first: int, end: int) -> None:
        for side, name in ((JoinSide.LEFT, "l"), (JoinSide.RIGHT, "r")):
            rows = columns(first, end, **{name: LONG, "__event_time": 100 if name == "l" else 1_000})
            store.accept(side, rows.schema)
            store.merge(side, rows)

    return feed, lambda: store.snapshot(BY_ITSELF), store.close


def contents(factory: StoreFactory) -> tuple[Feed, Freeze, Callable[[], None]]:
    spec = ContentsSpec("op", ("k",), WINDOW, GROUPS, range(GROUPS))
    schema = columns(0, 1, n=1, __event_time=10).schema
    store = WindowContents(spec, factory.fresh(spec, schema), schema)
    return (
        lambda first, end: _merged(store, columns(first, end, n=1, __event_time=10)),
        lambda: (store.snapshot(BY_ITSELF),),
        store.close,
    )


KINDS: dict[str, Callable[[StoreFactory], tuple[Feed, Freeze, Callable[[], None]]]] = {
    "aggregate": lambda factory: aggregate(factory, None),
    "windows": lambda factory: aggregate(factory, WINDOW),
    "deduplicate": deduplicate,
    "join": join,
    "contents": contents,
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[ScratchFolder]:
    made = ScratchFolder(tmp_path / "work", "state-")
    yield made
    made.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_snapshot_has_the_size_of_its_operators_state(
    kind: str, backend: str, scratch: ScratchFolder, tmp_path: Path
) -> None:
    choice = BACKENDS[backend]
    feed, freeze, close = KINDS[kind](StoreFactory(choice, scratch))
    sizes = []
    for number, (first, end) in enumerate([(0, 500), (500, 4_000)], 1):
        feed(first, end)
        writer = make_backend(choice, str(tmp_path / "storage"), "a1-v-0").writer(number)
        ((name, size),) = figures_of(_stored(freeze(), number, writer)).state_bytes
        assert name == "op"
        sizes.append(size)
    close()
    assert sizes[1] - sizes[0] > 3_500 * 8, sizes
    assert sizes[1] > 4 * sizes[0], sizes


def test_the_memory_backend_names_the_operator_that_takes_most(kind: str, scratch: ScratchFolder) -> None:
    choice = StateBackend(MemoryBackend(20_000))
    feed, freeze, close = KINDS[kind](StoreFactory(choice, scratch))
    feed(0, 5_000)
    with pytest.raises(SnapshotTooLarge) as raised:
        _stored(freeze(), 7, make_backend(choice, "", "").writer(7))
    close()
    text = str(raised.value)
    assert text.startswith("checkpoint 7: the state of operator 'op' takes ")
    assert " or more, and the memory backend allows 20,000 bytes a subtask; use the filesystem backend" in text
    assert int(text.partition("takes ")[2].partition(" bytes")[0].replace(",", "")) > 20_000


def test_the_rest_of_the_subtask_counts_and_is_named() -> None:
    writer = make_backend(StateBackend(MemoryBackend(100)), "", "").writer(7)
    for name, size in (("small", 10), ("large", 60), ("small", 20)):
        writer.begin(name)
        writer.store(name, pa.py_buffer(bytes(size)))
    with pytest.raises(SnapshotTooLarge) as raised:
        writer.store("more", pa.py_buffer(bytes(11)))
    assert (
        "the state of operator 'large' takes 60 bytes or more, together with the rest of this subtask 101, and the"
        " memory backend allows 100 bytes a subtask" in str(raised.value)
    )
    writer.undo()
    writer.store("all", pa.py_buffer(bytes(100)))


def _stored(frozen: Sequence[FrozenStore], number: int, writer: SnapshotWriter) -> Acknowledge:
    """As ChainSnapshot stores a subtask's state."""
    states = []
    try:
        for store in frozen:
            writer.begin(store.operator_id)
            states.append(store.persist(number, writer))
    finally:
        for store in frozen:
            store.release()
    return Acknowledge(number, SubtaskState("v", 0, tuple(states)), 0, 0, 0)
