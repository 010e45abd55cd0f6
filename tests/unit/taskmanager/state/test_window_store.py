"""Windows as a store: what a snapshot holds, restored by one subtask or by several, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    KeyedAggregate,
    OperatorState,
    SessionWindow,
    SlidingWindow,
    StateBackend,
    TumblingWindow,
    Window,
)

from taskmanager.state.backend import InlineBackend
from taskmanager.state.scratch import ScratchFolder
from taskmanager.state.store import StoreSpec
from taskmanager.state.stores import StoreMaker
from taskmanager.state.window_store import WindowStore
from taskmanager.task.program import BY_ITSELF, SnapshotOrder, StateUnreadable
from taskmanager.task.watermarks import MAX_WATERMARK

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = ("k", "__hash", "__pane", "__rows", "__p1", "__p2")
MAKER = StoreMaker(StateBackend(full_every=10), ScratchFolder(Path("unused"), "never"))
GROUPS = 8


def spec(kind: Any, groups: range = range(GROUPS)) -> StoreSpec:
    aggregate = KeyedAggregate(("k",), (Aggregate("n", AggregateFunction.COUNT, ""),), Window(kind, "at"))
    return StoreSpec("counts", aggregate, GROUPS, groups)


def partial(*rows: tuple[int, int]) -> pa.Table:
    """One record for each (key, time); times are starts of panes."""
    columns = [[key for key, _ in rows], [key for key, _ in rows], [at for _, at in rows], [1] * len(rows)]
    times = [at for _, at in rows]
    return pa.table([pa.array(one, pa.int64()) for one in (*columns, times, times)], names=list(NAMES))


def stored(store: Any, order: SnapshotOrder = BY_ITSELF) -> OperatorState:
    frozen = store.snapshot(order)
    found: OperatorState = frozen.persist(1, InlineBackend(1 << 20).writer(1))
    frozen.release()
    return found


def shown(table: pa.Table) -> dict[tuple[int, int], int]:
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
def test_what_has_not_fired_goes_on_in_whoever_has_its_key_groups_now(kind: Any, expected: dict[Any, int]) -> None:
    before = MAKER.fresh(spec(kind), partial((1, 0)).schema)
    assert isinstance(before, WindowStore)
    before.merge(partial((1, 0), (3, 0)))
    assert len(before.advance(19)) >= 2
    before.merge(partial((1, 20), (2, 20), (1, 20)))
    state = stored(before)
    halves = [MAKER.restored(spec(kind, groups), [state], 1) for groups in (range(4), range(4, GROUPS))]
    assert [one._state.clock.now for one in halves] == [19, 19]  # type: ignore[attr-defined]
    halves[1].merge(partial((5, 30)))
    assert halves[0].merge(partial((3, 0))).dropped == 1, "what had fired stays fired"
    again = MAKER.restored(spec(kind), [stored(one) for one in halves], 2)
    assert isinstance(again, WindowStore)
    assert shown(again.advance(1000)) == expected


@pytest.mark.parametrize("kind", [TumblingWindow(10), SlidingWindow(20, 10), SessionWindow(10)])
def test_state_of_a_drained_job_takes_what_comes_later(kind: Any) -> None:
    """The end of the input fires everything, and is no time that a job which goes on could be late for."""
    before = MAKER.fresh(spec(kind), partial((1, 0)).schema)
    assert isinstance(before, WindowStore)
    before.merge(partial((1, 0), (3, 0), (1, 40)))
    assert before.advance(29).num_rows
    assert before.advance(MAX_WATERMARK).num_rows
    after = MAKER.restored(spec(kind), [stored(before)], 1)
    assert isinstance(after, WindowStore)
    assert after._state.clock.now == 29
    assert not after.advance(1000).num_rows, "what has fired is gone"
    after = MAKER.restored(spec(kind), [stored(before)], 1)
    assert isinstance(after, WindowStore)
    merged = after.merge(partial((1, 40), (2, 50)))
    assert (merged.dropped, merged.changed.num_rows) == (0, 0)
    assert after.merge(partial((3, 0))).dropped == 1, "what was late before the end still is"
    assert {key for key, _ in shown(after.advance(1000))} == {1, 2}


def test_state_of_another_window_is_refused() -> None:
    before = MAKER.fresh(spec(TumblingWindow(10)), partial((1, 0)).schema)
    with pytest.raises(StateUnreadable, match="belongs to another aggregate"):
        MAKER.restored(spec(TumblingWindow(20)), [stored(before)], 1)


def test_snapshots_of_windows_are_always_whole() -> None:
    store = MAKER.fresh(spec(TumblingWindow(10)), partial((1, 0)).schema)
    store.merge(partial((1, 0)))
    stored(store)
    state = stored(store, SnapshotOrder(1))
    assert not state.increments
    assert state.handle is not None
