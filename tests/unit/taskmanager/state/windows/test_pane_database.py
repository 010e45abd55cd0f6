"""Windows in RocksDB: what is in memory, between batches and while many fire, and what is left when they are gone."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    KeyedAggregate,
    RocksdbBackend,
    SessionWindow,
    SlidingWindow,
    StateBackend,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format.state_file import StoredRows
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows import pane_database, session_database
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.panes import Panes
from lockgate_taskmanager.state.windows.session_state import SessionState
from lockgate_taskmanager.state.windows.shape import WindowShape
from lockgate_taskmanager.task.program import SnapshotOrder, UserError

from tests.property.taskmanager.state.windows.window_homes import fired

GROUPS = 8
KINDS = [TumblingWindow(10), SlidingWindow(20, 10), SessionWindow(10)]
COUNTED = (Aggregate("n", AggregateFunction.COUNT, ""),)


class Maker:
    """Stores of windows in one folder."""

    def __init__(self, folder: Path) -> None:
        self.maker = StoreFactory(StateBackend(RocksdbBackend(memory_bytes=16 << 20)), ScratchFolder(folder, "state-"))
        self.made: list[Any] = []

    def spec(self, kind: Any, lateness: int = 0) -> StoreSpec:
        return StoreSpec("w", KeyedAggregate(("k",), COUNTED, Window(kind, "at", lateness)), GROUPS, range(GROUPS))

    def fresh(self, kind: Any, lateness: int = 0) -> Any:
        self.made.append(self.maker.fresh(self.spec(kind, lateness), partial(range(1), 0).schema))
        return self.made[-1]

    def again(self, store: Any, kind: Any, lateness: int = 0) -> Any:
        """Out of a checkpoint."""
        frozen = store.snapshot(SnapshotOrder())
        state = frozen.persist(1, InlineBackend(1 << 24).writer(1))
        frozen.release()
        self.made.append(self.maker.restored(self.spec(kind, lateness), [state], 1))
        return self.made[-1]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Maker]:
    made = Maker(tmp_path)
    yield made
    for item in made.made:
        item.close()


def partial(keys: Any, at: int) -> pa.Table:
    """A record for each key at one time, the start of a pane."""
    numbers = np.array(keys, np.int64)
    ones, times = np.ones(len(numbers), np.int64), np.full(len(numbers), at)
    hashes = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    names = ["k", "__hash", "__pane", "__rows", "__p1", "__p2"]
    return pa.table([pa.array(item) for item in (numbers, hashes, times, ones, times, times)], names=names)


def taken() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_between_batches_there_is_no_row_in_memory(stores: Maker, kind: Any) -> None:
    store = stores.fresh(kind)
    store.merge(partial(range(5_000), 100))  # whatever is made once is there
    tracemalloc.start()
    try:
        before = taken()
        for turn in range(1, 9):
            store.merge(partial(range(5_000 * turn, 5_000 * turn + 5_000), 100))
        assert taken() - before < 40_000, "a byte a key at most, and a key and a count are 24"
    finally:
        tracemalloc.stop()
    assert fired(store, 1_000).num_rows == 45_000 * (2 if isinstance(kind, SlidingWindow) else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_many_windows_fire_some_at_a_time(stores: Maker, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane_database, "ROWS_AT_ONCE", 100)
    monkeypatch.setattr(session_database, "_KEYS_AT_ONCE", 100)
    sizes: list[int] = []
    for state in (PaneState, SessionState):
        original: Any = state.take_up

        def watched(self: Any, rows: StoredRows, original: Any = original) -> None:
            sizes.append(len(rows.hashes))
            original(self, rows)

        monkeypatch.setattr(state, "take_up", watched)
    store = stores.fresh(kind)
    for start in range(0, 5_000, 50):
        for at in (0, 10):
            store.merge(partial(range(start, start + 50), 3 * at))
    sizes.clear()
    assert fired(store, 1_000).num_rows == 5_000 * (4 if isinstance(kind, SlidingWindow) else 2)
    assert max(sizes) <= 300, "of 10,000"


@pytest.mark.parametrize("kind", KINDS)
def test_removed_rows_are_removed_from_the_disk(stores: Maker, kind: Any) -> None:
    store = stores.fresh(kind)
    for turn in range(5):
        frozen = store.snapshot(SnapshotOrder())  # from here on writes are held back
        store.merge(partial(range(100 * turn, 100 * turn + 100), 100 * turn))
        count = store.advance(100 * turn - 1).num_rows
        assert count == (0 if not turn else 200 if isinstance(kind, SlidingWindow) else 100)
        frozen.release()
    store.advance(10_000)
    again = stores.again(store, kind)
    for opened in (store, again):
        assert opened.database.rows(b"", b"\xff" * 32, 10) == []
        assert opened.advance(20_000).num_rows == 0


@pytest.mark.parametrize("kind", KINDS)
def test_windows_may_be_kept_less_or_longer_than_before(stores: Maker, kind: Any) -> None:
    """The allowed lateness of a job may change from one run to the next."""
    before = stores.fresh(kind, 1_000)
    before.merge(partial(range(50), 0))
    before.advance(500)
    assert before.merge(partial(range(50), 0)).changed.num_rows
    shorter, longer = stores.again(before, kind, 0), stores.again(before, kind, 5_000)
    for store in (shorter, longer):
        assert store.advance(501).num_rows == 0
    merged = shorter.merge(partial(range(50), 0))
    assert (merged.dropped, merged.changed.num_rows) == (50, 0)
    assert longer.advance(4_000).num_rows == 0
    changed = longer.merge(partial(range(50), 0)).changed
    assert set(changed.column("n").to_pylist()) == {3}
    assert shorter.database.rows(b"", b"\xff" * 32, 10) == []


@pytest.mark.parametrize("backend", [StateBackend(), StateBackend(RocksdbBackend(memory_bytes=16 << 20))])
def test_a_session_that_was_kept_longer_before_takes_no_record_in(
    stores: Maker, tmp_path: Path, backend: StateBackend
) -> None:
    """Whether event time goes on between the restore and the record, or not."""
    maker = StoreFactory(backend, ScratchFolder(tmp_path / "other", "state-"))
    before: Any = maker.fresh(stores.spec(SessionWindow(10), 1_000), partial(range(1), 0).schema)
    stores.made.append(before)
    before.merge(partial([1], 0))
    assert before.advance(10).num_rows == 1
    frozen = before.snapshot(SnapshotOrder())
    state = frozen.persist(1, InlineBackend(1 << 24).writer(1))
    frozen.release()
    for is_later in (True, False):
        store: Any = maker.restored(stores.spec(SessionWindow(10), 0), [state], 1)
        stores.made.append(store)
        if is_later:
            store.advance(11)
        assert store.merge(partial([1], 10)).dropped == 0
        assert store.advance(50).column("n").to_pylist() == [1]


@pytest.mark.parametrize("backend", [StateBackend(), StateBackend(RocksdbBackend(memory_bytes=16 << 20))])
@pytest.mark.parametrize("kind", [TumblingWindow(10), SlidingWindow(20, 10)])
def test_event_time_does_not_visit_fired_windows_however_many_are_kept(
    stores: Maker, tmp_path: Path, backend: StateBackend, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = StoreFactory(backend, ScratchFolder(tmp_path / "other", "state-")).fresh(
        stores.spec(kind, 1_000_000), partial(range(1), 0).schema
    )
    stores.made.append(store)
    for number in range(50):
        store.merge(partial(range(3), 10 * number))
    looked: list[int] = []
    due: Any = WindowShape.due
    monkeypatch.setattr(WindowShape, "due", lambda self, panes, *when: looked.extend(panes) or due(self, panes, *when))
    assert store.advance(400).num_rows >= 3 * 40
    looked.clear()
    store.advance(401)
    assert store.advance(410).num_rows == 3
    assert len(looked) <= 10, "of 40 that are kept"


def test_windows_of_many_panes_that_fire_together_are_read_together(
    stores: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when event time has been behind: a pane is in as many windows as a window has panes."""
    store = stores.fresh(SlidingWindow(1_000, 10))
    for number in range(164):
        store.merge(partial([1], 10 * number))
    read: list[int] = []
    rows: Any = store.database.rows

    def watched(start: bytes, end: bytes, limit: int) -> Any:
        found = rows(start, end, limit)
        read.append(len(found))
        return found

    monkeypatch.setattr(store.database, "rows", watched)
    assert store.advance(1_639).num_rows == 164
    assert sum(read) <= 1_000, "of 9,434 when each window is read for itself"


def test_a_window_that_fires_again_has_the_other_panes_of_its_key(stores: Maker) -> None:
    store = stores.fresh(SlidingWindow(20, 10), 1_000)
    store.merge(partial([1, 2], 0))
    store.merge(partial([1], 10))
    assert store.advance(100).num_rows == 5
    again = store.merge(partial([1], 10)).changed
    assert again.column("k").to_pylist() == [1, 1]
    assert sorted(again.column("n").to_pylist()) == [2, 3]


def test_a_key_of_a_type_that_a_database_cannot_hold_is_the_authors_error(stores: Maker) -> None:
    schema = partial(range(1), 0).schema.set(0, pa.field("k", pa.dictionary(pa.int32(), pa.string())))
    for kind in KINDS:
        with pytest.raises(UserError, match="cannot be kept in rocksdb"):
            stores.maker.fresh(stores.spec(kind), schema)


def test_panes_are_known_with_the_key_groups_that_have_rows() -> None:
    panes = Panes(range(3, 7))
    panes.add(np.array([20, 10, 20]), np.array([3, 5, 6]))
    assert panes.among(np.array([20, 10, 15, 20])).tolist() == [True, True, False, True]
    assert (panes.until(30, 10), panes.until(20, 9), panes.until(30, 20)) == ([20], [10, 20], [])
    nothing = np.zeros(0, np.int64)
    panes.add(nothing, nothing)
    assert panes.among(nothing).tolist() == []
    assert (panes.until(19), panes.until(20)) == ([10], [10, 20])
    assert (panes.groups([10]), panes.groups([10, 20])) == ([5], [3, 5, 6])
    assert (panes.in_group([10, 20], 5), panes.in_group([10, 20], 4)) == ([10], [])
    panes.drop([10])
    assert (panes.until(99), panes.groups([20])) == ([20], [3, 6])
