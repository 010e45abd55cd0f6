"""Windows as a store: what a snapshot holds, restored by one subtask or by several, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_coordinator.checkpoint.handles import completed_handles
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointMetadata,
    KeyedAggregate,
    OperatorState,
    SessionWindow,
    SlidingWindow,
    StateBackend,
    StateHandle,
    SubtaskState,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.state.backend import InlineBackend, load
from lockgate_taskmanager.state.columns.deadlines import Deadlines
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.shape import WindowShape
from lockgate_taskmanager.state.windows.window_state import WindowState
from lockgate_taskmanager.task.program import BY_ITSELF, SnapshotOrder, StateUnreadable
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = ("k", "__hash", "__pane", "__rows", "__p1", "__p2")
MAKER = StoreFactory(StateBackend(full_every=10), ScratchFolder(Path("unused"), "never"))
GROUPS = 8


def spec(kind: Any, groups: range = range(GROUPS), lateness_ms: int = 0) -> StoreSpec:
    aggregate = KeyedAggregate(("k",), (Aggregate("n", AggregateFunction.COUNT, ""),), Window(kind, "at", lateness_ms))
    return StoreSpec("counts", aggregate, GROUPS, groups)


def partial(*rows: tuple[int, int]) -> pa.Table:
    """One record for each (key, time); times are starts of panes."""
    columns = [[key for key, _ in rows], [key for key, _ in rows], [at for _, at in rows], [1] * len(rows)]
    times = [at for _, at in rows]
    return pa.table([pa.array(column, pa.int64()) for column in (*columns, times, times)], names=list(NAMES))


def stored(store: Any, order: SnapshotOrder = BY_ITSELF, number: int = 1) -> OperatorState:
    frozen = store.snapshot(order)
    found: OperatorState = frozen.persist(number, InlineBackend(1 << 22).writer(number))
    frozen.release()
    return found


def whole(earlier: Sequence[OperatorState], state: OperatorState) -> OperatorState:
    """With the bytes that the coordinator puts in where they were taken over."""
    known = [CheckpointMetadata(1, subtasks=(SubtaskState("v", 0, (state,)),)) for state in earlier]
    (subtask,) = completed_handles((SubtaskState("v", 0, (state,)),), known)
    return subtask.operators[0]


def results(table: pa.Table) -> dict[tuple[int, int], int]:
    rows = table.to_pylist()
    return {(row["k"], (row["window_start"] - EPOCH) // timedelta(milliseconds=1)): row["n"] for row in rows}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (TumblingWindow(10), {(1, 20): 2, (2, 20): 1, (5, 30): 1}),
        (SlidingWindow(20, 10), {(1, 10): 2, (1, 20): 2, (2, 10): 1, (2, 20): 1, (5, 20): 1, (5, 30): 1}),
        (SessionWindow(10), {(1, 20): 2, (2, 20): 1, (5, 30): 1}),
    ],
)
def test_windows_that_have_not_fired_continue_in_the_new_owner_of_their_key_groups(
    kind: Any, expected: dict[Any, int]
) -> None:
    before = MAKER.fresh(spec(kind), partial((1, 0)).schema)
    assert isinstance(before, WindowState)
    before.merge(partial((1, 0), (3, 0)))
    assert len(before.advance(19)) >= 2
    before.merge(partial((1, 20), (2, 20), (1, 20)))
    state = stored(before)
    halves = [MAKER.restored(spec(kind, groups), [state], 1) for groups in (range(4), range(4, GROUPS))]
    assert [half.clock.now for half in halves] == [19, 19]  # type: ignore[attr-defined]
    halves[1].merge(partial((5, 30)))
    assert halves[0].merge(partial((3, 0))).dropped == 1, "what had fired stays fired"
    again = MAKER.restored(spec(kind), [stored(half) for half in halves], 2)
    assert isinstance(again, WindowState)
    assert results(again.advance(1000)) == expected


@pytest.mark.parametrize("kind", [TumblingWindow(10), SlidingWindow(20, 10), SessionWindow(10)])
def test_state_of_a_drained_job_accepts_later_records(kind: Any) -> None:
    """The end of the input fires everything, and is no time that a job which goes on could be late for."""
    before = MAKER.fresh(spec(kind), partial((1, 0)).schema)
    assert isinstance(before, WindowState)
    before.merge(partial((1, 0), (3, 0), (1, 40)))
    assert before.advance(29).num_rows
    assert before.advance(MAX_WATERMARK).num_rows
    after = MAKER.restored(spec(kind), [stored(before)], 1)
    assert isinstance(after, WindowState)
    assert after.clock.now == 29
    assert not after.advance(1000).num_rows, "what has fired is gone"
    after = MAKER.restored(spec(kind), [stored(before)], 1)
    assert isinstance(after, WindowState)
    merged = after.merge(partial((1, 40), (2, 50)))
    assert (merged.dropped, merged.changed.num_rows) == (0, 0)
    assert after.merge(partial((3, 0))).dropped == 1, "what was late before the end still is"
    assert {key for key, _ in results(after.advance(1000))} == {1, 2}


def test_state_of_another_window_is_refused() -> None:
    before = MAKER.fresh(spec(TumblingWindow(10)), partial((1, 0)).schema)
    with pytest.raises(StateUnreadable, match=r"belongs to another aggregate.*window.*or let the operator begin"):
        MAKER.restored(spec(TumblingWindow(20)), [stored(before)], 1)


def rows_in(handle: StateHandle) -> list[int]:
    """The keys of the rows of a piece."""
    found: list[int] = pa.ipc.open_file(load(handle)).read_all().column("k").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("kind", [TumblingWindow(10), SlidingWindow(20, 10), SessionWindow(10)])
def test_an_increment_holds_the_changes_since_its_base(kind: Any) -> None:
    store: Any = MAKER.fresh(spec(kind), partial((1, 0)).schema)
    store.merge(partial(*((key, 100) for key in range(600))))
    first = stored(store)
    store.merge(partial((1, 100)))
    stored(store, SnapshotOrder(1), number=2)  # which is never reported on
    store.merge(partial((2, 100), (1000, 100)))
    third = stored(store, SnapshotOrder(1), number=3)
    assert [increment.checkpoint_id for increment in (third.handle, *third.increments) if increment is not None] == [
        1,
        3,
    ]
    assert third.handle is not None
    assert first.handle is not None
    assert third.handle.checksum == first.handle.checksum
    assert rows_in(third.increments[0]) == [1, 2, 1000]
    store.merge(partial((3, 100)))
    fourth = whole([third], stored(store, SnapshotOrder(3), number=4))
    assert [rows_in(increment) for increment in fourth.increments] == [[1, 2, 1000], [3]]
    savepoint = stored(store, SnapshotOrder(3, is_savepoint=True), number=5)
    assert savepoint.increments == ()
    assert rows_in(savepoint.handle or StateHandle()) == [*range(600), 1000]


@pytest.mark.parametrize("kind", [TumblingWindow(10), SlidingWindow(20, 10), SessionWindow(10)])
def test_a_restored_chain_is_complete_and_built_on(kind: Any) -> None:
    before: Any = MAKER.fresh(spec(kind), partial((1, 0)).schema)
    before.merge(partial(*((key, 100) for key in range(600)), (1, 10), (1040, 10)))
    base = stored(before)
    before.merge(partial((1, 100), (1050, 40)))
    second = whole([base], stored(before, SnapshotOrder(1), number=2))
    before.advance(39)
    before.merge(partial((1, 100), (1060, 50)))
    state = whole([base, second], stored(before, SnapshotOrder(2), number=3))
    assert len(state.increments) == 2
    halves: list[Any] = [MAKER.restored(spec(kind, groups), [state], 3) for groups in (range(4), range(4, GROUPS))]
    again: Any = MAKER.restored(spec(kind), [state], 3)
    expected = results(before.advance(1000))
    assert {key for key, _ in expected} == {*range(600), 1050, 1060}
    assert expected[1, 100] == 3
    assert results(pa.concat_tables([half.advance(1000) for half in halves])) == expected
    again.merge(partial((7, 100)))
    after = stored(again, SnapshotOrder(3), number=4)
    assert [rows_in(increment) for increment in after.increments[2:]] == [[7]]
    assert results(again.advance(1000)) == {**expected, **{at: n + 1 for at, n in expected.items() if at[0] == 7}}
    one_of_two = stored(MAKER.restored(spec(kind, range(4)), [state], 3), SnapshotOrder(3), number=4)
    assert one_of_two.increments == (), "the state of another subtask is nothing to build on"


def test_a_session_that_was_purged_after_the_base_takes_nothing_in_after_a_restore() -> None:
    before: Any = MAKER.fresh(spec(SessionWindow(10)), partial((1, 0)).schema)
    before.merge(partial((1, 0), *((key, 100) for key in range(2, 600))))
    base = stored(before)
    assert results(before.advance(9)) == {(1, 0): 1}
    again: Any = MAKER.restored(spec(SessionWindow(10)), [whole([base], stored(before, SnapshotOrder(1), number=2))], 2)
    for store in (before, again):  # at the very end of the other: together they would be one
        store.merge(partial((1, 10)))
        assert results(store.advance(50)) == {(1, 10): 1}


def test_sessions_that_have_grown_together_after_the_base_are_one_after_a_restore() -> None:
    before: Any = MAKER.fresh(spec(SessionWindow(10)), partial((1, 0)).schema)
    before.merge(partial((1, 0), (1, 20), *((key, 100) for key in range(2, 600))))
    base = stored(before)
    before.merge(partial((1, 10)))
    state = whole([base], stored(before, SnapshotOrder(1), number=2))
    assert rows_in(state.increments[0]) == [1]
    again: Any = MAKER.restored(spec(SessionWindow(10)), [state], 2)
    assert results(again.advance(50)) == {(1, 0): 3}


def test_windows_fired_by_the_end_of_the_input_are_in_no_later_snapshot() -> None:
    before: Any = MAKER.fresh(spec(TumblingWindow(10)), partial((1, 0)).schema)
    before.merge(partial(*((key, 100) for key in range(20))))
    base = stored(before)
    before.advance(MAX_WATERMARK)
    state = whole([base], stored(before, SnapshotOrder(1), number=2))
    again: Any = MAKER.restored(spec(TumblingWindow(10)), [state], 2)
    again.merge(partial((1, 100)))
    further = whole([base, state], stored(again, SnapshotOrder(2), number=3))
    for number in (2, 3):
        last: Any = MAKER.restored(spec(TumblingWindow(10)), [state if number == 2 else further], number)
        assert results(last.advance(1000)) == ({} if number == 2 else {(1, 100): 1})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TumblingWindow(10), SlidingWindow(20, 10), SessionWindow(10)])
def test_short_lived_windows_keep_increments_small(kind: Any) -> None:
    """Places move together again and again, and the many that stay are in no increment for it."""
    store: Any = MAKER.fresh(spec(kind), partial((1, 0)).schema)
    store.merge(partial(*((key, 10_000) for key in range(6_000))))
    states = [stored(store)]
    for turn in range(1, 9):
        store.merge(partial(*((key, 20 * turn) for key in range(10_000, 13_000))))
        store.advance(20 * turn + 25)
        states.append(whole(states, stored(store, SnapshotOrder(turn), number=turn + 1)))
        assert [len(rows_in(increment)) for increment in states[-1].increments] == [0] * turn
    assert len(store._index) < 20_000, "24,000 rows have been here"
    again: Any = MAKER.restored(spec(kind), [states[-1]], 9)
    assert len(again) == 6_000


def test_a_session_that_goes_on_has_one_entry_in_each_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each batch: those with lateness would stay for hours, and all would be visited when they are due."""
    filed: list[int] = []
    add = Deadlines.add
    monkeypatch.setattr(
        Deadlines, "add", lambda self, rows, times: (filed.append(len(rows)), add(self, rows, times))[1]
    )
    store: Any = MAKER.fresh(spec(SessionWindow(60_000), lateness_ms=3_600_000), partial((1, 0)).schema)
    for at in range(0, 100_000, 200):
        store.merge(partial((1, at), (2, at)))
        assert not store.advance(at - 1000).num_rows
    assert sum(filed) == 6, "for two rows: their end, that of their retention, and their end again after a minute"
    assert store.next_due_ms() <= 99_800 + 60_000
    assert results(store.advance(99_800 + 60_000)) == {(1, 0): 500, (2, 0): 500}
    assert len(store) == 2
    store.advance(99_800 + 3_660_000)
    assert len(store) == 0


@pytest.mark.parametrize("full_every", [0, 7])
def test_increments_of_windows_are_made_where_the_job_wants_them(full_every: int) -> None:
    store = StoreFactory(StateBackend(full_every=full_every), ScratchFolder(Path("unused"), "never")).fresh(
        spec(TumblingWindow(10)), partial((1, 0)).schema
    )
    store.merge(partial((1, 0), (2, 0), (3, 0)))
    stored(store)
    store.merge(partial((1, 0)))
    assert bool(stored(store, SnapshotOrder(1), number=2).increments) == (full_every > 1)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(-7, 7), st.integers(0, 9), st.integers(-60, 60))
def test_one_bound_decides_about_expiry(size: int, slide: int, offset: int, lateness: int, watermark: int) -> None:
    shape = WindowShape(size, min(slide, size), offset, lateness)
    panes = np.arange(-99, 99)
    assert ((panes <= shape.expired_until(watermark)) == shape.is_expired(panes, watermark)).all()
    assert ((panes <= shape.fired_until(watermark)) == shape.is_over(shape.last_end(panes), watermark)).all()
    assert shape.expired_until(MIN_WATERMARK) == MIN_WATERMARK
    assert shape.expired_until(MAX_WATERMARK) > 1 << 62


@given(st.integers(1, 12), st.integers(1, 12), st.integers(-7, 7), st.integers(0, 30), st.integers(-60, 60))
def test_the_first_and_the_last_end_decide_which_windows_are_kept(
    size: int, slide: int, offset: int, lateness: int, watermark: int
) -> None:
    shape = WindowShape(size, min(slide, size), offset, lateness)
    panes = np.arange(offset - 99 * shape.pane_ms, offset + 99 * shape.pane_ms, shape.pane_ms)
    for reached in (watermark, np.full(len(panes), watermark)):
        first, last = shape.kept_ends(panes, reached)
        for number, pane in enumerate(panes.tolist()):
            kept = [end for end in shape.ends(pane) if end <= watermark + 1 < end + lateness]
            assert list(range(first[number], last[number] + 1, shape.slide_ms)) == kept
    for reached in (MIN_WATERMARK, MAX_WATERMARK, np.full(len(panes), MIN_WATERMARK)):
        first, last = shape.kept_ends(panes, reached)
        assert (first > last).all(), "nothing has fired yet, or nothing is kept any more"
