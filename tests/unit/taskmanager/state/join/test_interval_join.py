"""An interval join in every home of its rows: when they wait, what a snapshot holds, and what is refused.

In memory also what costs what, and increments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_coordinator.checkpoint.handles import completed_handles
from lockgate_proto.messages import (
    CheckpointMetadata,
    IntervalJoin,
    JoinSide,
    Operator,
    OperatorState,
    StateBackend,
    StateHandle,
    SubtaskState,
)
from lockgate_taskmanager.state.backend import InlineBackend, load
from lockgate_taskmanager.state.columns.pieces import Pieces
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.join.interval_join import JoinStore
from lockgate_taskmanager.state.join.join_heap import JoinHeap
from lockgate_taskmanager.state.join.join_spec import JoinSpec, SideSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import BY_ITSELF, SnapshotOrder, StateUnreadable, UserError
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

from tests.join_homes import HOMES, JoinFolder, count_of, join_folder, waiting

LEFT, RIGHT = JoinSide.LEFT, JoinSide.RIGHT
JOIN = IntervalJoin(("k",), ("k",), "at", "at", -5, 10)


def rows(*records: tuple[int | None, int | None], value: str = "v") -> pa.Table:
    """(key, time) each; the key is its own hash."""
    keys, times = [key for key, _ in records], [time for _, time in records]
    names = ["k", value, "__hash", "__event_time"]
    hashes = [(key or 0) * 0x9E3779B97F4A7C15 % 2**63 for key in keys]
    return pa.table([pa.array(item, pa.int64()) for item in (keys, times, hashes, times)], names=names)


Make = Callable[..., JoinStore]


@pytest.fixture
def folder() -> Iterator[JoinFolder]:
    """Where the joins of a test work."""
    with join_folder() as made:
        yield made


@pytest.fixture(params=list(HOMES))
def store(folder: JoinFolder, request: pytest.FixtureRequest) -> Make:
    """Makes joins of JOIN, or another, which know their columns unless they are to be restored."""

    def make(join: IntervalJoin = JOIN, *, is_fresh: bool = True) -> JoinStore:
        made = folder.store(HOMES[request.param], join, 8)
        for side, value in ((LEFT, "l"), (RIGHT, "r")) if is_fresh else ():
            made.accept(side, rows(value=value).schema)
        return made

    return make


def saved(home: JoinStore) -> list[OperatorState]:
    """A savepoint."""
    writer = InlineBackend(1 << 20).writer(1)
    return [item.persist(1, writer) for item in home.snapshot(SnapshotOrder(is_savepoint=True))]


def pairs(home: JoinStore, side: JoinSide, *records: tuple[int | None, int | None]) -> list[tuple[int, int]]:
    found = home.merge(side, rows(*records, value="l" if side is LEFT else "r")).pairs
    return sorted((row["l"], row["r"]) for table in found for row in table.to_pylist())


def test_both_ends_of_the_interval_are_in_it(store: Make) -> None:
    home = store()
    assert pairs(home, LEFT, (1, 100)) == []
    assert pairs(home, RIGHT, (1, 94), (1, 95), (1, 110), (1, 111), (2, 100)) == [(100, 95), (100, 110)]
    assert pairs(home, LEFT, (1, 101), (None, 100)) == [(101, 110), (101, 111)]


def exact(*records: tuple[int, int | None], value: str) -> pa.Table:
    """Rows of key 1: (time in microseconds, the same as reported)."""
    table = rows(*((1, at // 1000) for at, _ in records), value=value)
    micros = pa.array([time for _, time in records], pa.int64())
    return table.append_column("__lockgate_micros", micros).set_column(1, value, micros)


def test_the_ends_of_the_interval_are_exact(store: Make) -> None:
    home = store(is_fresh=False)
    home.accept(LEFT, exact(value="l").schema)
    home.accept(RIGHT, exact(value="r").schema)
    assert home.schema() == pa.schema([(name, pa.int64()) for name in ("k", "l", "r")])
    list(home.merge(LEFT, exact((100_500, 100_500), value="l")).pairs)
    near = [95_499, 95_500, 95_501, 110_499, 110_500, 110_501]
    found = home.merge(RIGHT, exact(*((at, at) for at in near), value="r")).pairs
    assert sorted(row["r"] for table in found for row in table.to_pylist()) == [95_500, 95_501, 110_499, 110_500]
    again = store(is_fresh=False)
    again.restore(saved(home), 1)
    found = again.merge(LEFT, exact((100_499, 100_499), (100_501, None), value="l")).pairs
    pairs_now = sorted((row["l"] or 0, row["r"]) for table in found for row in table.to_pylist())
    assert pairs_now == [*((0, at) for at in near), *((100_499, at) for at in near[:4])], "unknown: by milliseconds"


@pytest.mark.spark
def test_state_of_earlier_versions_continues_in_milliseconds(store: Make) -> None:
    from lockgate_taskmanager.spark.join_head import JoinHead

    home = store()
    pairs(home, LEFT, (1, 100))
    again = store(is_fresh=False)
    again.restore(saved(home), 1)
    head = JoinHead(Operator("join", "", JOIN), {"left": LEFT, "right": RIGHT}, again)
    for name, value in (("left", "l"), ("right", "r")):
        head.accept(name, exact(value=value).schema)
    found = head.merge("right", exact((110_999, 110_999), value="r")).pairs
    assert [row["r"] for table in found for row in table.to_pylist()] == [110_999]


def test_a_row_waits_until_no_partner_can_come(store: Make) -> None:
    home = store()
    pairs(home, LEFT, (1, 100))
    home.advance(109)
    assert pairs(home, RIGHT, (1, 110)) == [(100, 110)]
    home.advance(110)
    assert home.merge(RIGHT, rows((1, 110), (1, None), value="r")).dropped == 2, "too late, and without a time"
    assert {side: table.num_rows for side, table in waiting(home).items()} == {LEFT: 0, RIGHT: 1}
    again = store(is_fresh=False)
    again.restore(saved(home), 1)
    assert count_of(again) == 1, "of the right, whose left may still come; the left row is over"


def test_rows_with_partners_only_in_the_past_are_not_kept(store: Make) -> None:
    home = store(replace(JOIN, lower_ms=-10, upper_ms=-5))
    pairs(home, RIGHT, (1, 92))
    home.advance(99)
    assert pairs(home, LEFT, (1, 100)) == [(100, 92)]
    assert count_of(home) == 1


def test_the_end_of_the_input_is_not_an_event_time(store: Make) -> None:
    home = store()
    pairs(home, LEFT, (1, 100))
    home.advance(99)
    home.advance(MAX_WATERMARK)
    again = store(is_fresh=False)
    again.restore(saved(home), 1)
    assert pairs(again, RIGHT, (1, 101)) == [(100, 101)]


@pytest.mark.parametrize(
    ("join", "held"), [(JOIN, 10), (replace(JOIN, upper_ms=0), 5), (replace(JOIN, lower_ms=3), 10)]
)
def test_the_watermark_is_held_back_by_the_longer_way(store: Make, join: IntervalJoin, held: int) -> None:
    assert store(join).held_back_ms == held
    assert store(IntervalJoin(("k",), ("k",), "at", "at", -9, -3)).held_back_ms == 9


def side_spec(span_ms: int) -> SideSpec:
    join = replace(JOIN, lower_ms=0, upper_ms=span_ms - 1)
    return JoinSpec("match", join, 8, range(8)).of(LEFT)


def test_the_cost_of_a_look_up_depends_on_candidates_and_not_on_waiting_rows() -> None:
    schema = pa.schema([("v", pa.int64())])
    home = JoinHeap(side_spec(span_ms=10), schema, StateBackend())
    count = 100_000
    times = np.arange(count)
    home.add(pa.record_batch([pa.array(times)], schema=schema), np.full(count, 7), times)
    positions, _, counts = home._candidates(np.array([7]), np.array([50_000]), np.array([50_009]))
    assert counts.sum() <= 20
    assert set(positions.tolist()) == {0}


def test_forgotten_rows_give_their_place_back() -> None:
    schema = pa.schema([("v", pa.int64())])
    home = JoinHeap(side_spec(span_ms=1000), schema, StateBackend())
    for start in range(0, 200_000, 5_000):
        times = np.arange(start, start + 5_000)
        home.add(pa.record_batch([pa.array(times)], schema=schema), np.full(5_000, 7), times)
        home.forget(start - 5_000)
    assert len(home._pieces) < 30_000
    found = [rows for _, rows in home.near(np.array([7]), np.array([199_000]), np.array([199_999]))]
    assert sorted(pa.Table.from_batches(found).column("v").to_pylist()) == list(range(199_000, 200_000))


def test_pieces_are_few_and_rows_come_in_the_requested_order() -> None:
    schema = pa.schema([("v", pa.string())])
    pieces = Pieces(schema)
    for number in range(1000):
        pieces.append(pa.record_batch([pa.array([str(3 * number + item) for item in range(3)])], schema=schema))
    assert len(pieces) == 3000
    assert len(pieces._pieces) < 15
    asked = np.array([2999, 0, 1500, 1500, 7])
    assert pieces.take(asked).column("v").to_pylist() == [str(item) for item in asked]
    assert pieces.take(asked[:0]).num_rows == 0


def test_another_join_is_not_restored(store: Make) -> None:
    home = store()
    pairs(home, LEFT, (1, 100))
    state = saved(home)
    again = store(replace(JOIN, right_prefix="r_"), is_fresh=False)
    again.restore(state, 1)
    assert count_of(again) == 1, "names of results may change"
    with pytest.raises(StateUnreadable, match="keep keys, times and bounds as they were"):
        store(replace(JOIN, upper_ms=11), is_fresh=False).restore(state, 1)
    with pytest.raises(StateUnreadable, match="is missing in the checkpoint"):
        store(is_fresh=False).restore([replace(state[0], handle=None)], 1)
    with pytest.raises(StateUnreadable, match="cannot be read as keyed state"):
        store(is_fresh=False).restore([replace(state[0], handle=StateHandle(inline=b"nonsense"))], 1)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"K": pa.string()}, "left 'k' is int64, right 'K' is string"),
        ({"no": pa.int64()}, "the right side of the join has no column 'k'; its columns are: no"),
        ({"k": pa.list_(pa.int64())}, "column 'k' of type list<item: int64> cannot be a key"),
    ],
)
def test_sides_that_do_not_fit_are_refused(store: Make, schema: dict[str, Any], message: str) -> None:
    home = store(is_fresh=False)
    home.accept(LEFT, rows().schema)
    assert home.schema() is None
    with pytest.raises(UserError, match=message):
        home.accept(RIGHT, pa.schema(list(schema.items())))


def kept(home: JoinStore, base_id: int, number: int, earlier: list[SubtaskState], limit: int = 1 << 22) -> SubtaskState:
    """A checkpoint of the store, with the bytes that the coordinator puts in."""
    writer = InlineBackend(limit).writer(number)
    states = tuple(item.persist(number, writer) for item in home.snapshot(SnapshotOrder(base_id)))
    metadata = [CheckpointMetadata(1, subtasks=(subtask_state,)) for subtask_state in earlier]
    return completed_handles((SubtaskState("v", 0, states),), metadata)[0]


def rows_in(handle: StateHandle | None) -> list[int]:
    assert handle is not None
    times: list[int] = pa.ipc.open_file(load(handle)).read_all().column("__event_time").to_pylist()
    return sorted(times)


def incremental(groups: range = range(8), *, is_fresh: bool = True) -> JoinStore:
    """In memory."""
    spec = JoinSpec("match", JOIN, 8, groups)
    made = StoreFactory(StateBackend(full_every=4), ScratchFolder(Path("unused"), "")).join(spec)
    for side, value in ((LEFT, "l"), (RIGHT, "r")) if is_fresh else ():
        made.accept(side, rows(value=value).schema)
    return made


def test_an_increment_holds_the_rows_added_since_its_base_and_each_side_has_its_own() -> None:
    home = incremental()
    pairs(home, LEFT, *((key, 1000) for key in range(600)), (1, 20))
    pairs(home, RIGHT, *((key, 2000) for key in range(300)))
    states = [kept(home, 0, 1, [])]
    home.advance(40)
    pairs(home, LEFT, (1, 50), (1, 50))
    kept(home, 1, 2, states)  # which is never reported on
    pairs(home, RIGHT, (2, 44))
    home.advance(42)
    states.append(kept(home, 1, 3, states))
    left, right = states[1].operators
    assert [rows_in(increment) for increment in left.increments] == [[50, 50]]
    assert [rows_in(increment) for increment in right.increments] == [[44]]
    assert (left.handle, right.handle) == tuple(operator.handle for operator in states[0].operators)
    home.advance(49)
    pairs(home, LEFT, (7, 60))
    states.append(kept(home, 3, 4, states))
    assert [rows_in(increment) for increment in states[2].operators[0].increments] == [[50, 50], [60]]
    again = incremental(is_fresh=False)
    again.restore(states[2].operators, 4)
    assert count_of(again) == 603 + 300, "what event time has purged since it was stored does not come back"
    assert pairs(again, RIGHT, (1, 60)) == pairs(home, RIGHT, (1, 60)) == [(50, 60), (50, 60)]
    states.append(kept(again, 4, 5, states))
    assert [len(operator.increments) for operator in states[3].operators] == [3, 3], "a restored state is a base"
    halves = [incremental(groups, is_fresh=False) for groups in (range(4), range(4, 8))]
    for half in halves:
        half.restore(states[3].operators, 5)
        assert kept(half, 5, 6, states).operators[0].increments == (), "another subtask's is none"
    whole = incremental(is_fresh=False)
    whole.restore(
        [operator for number, half in enumerate(halves) for operator in kept(half, 0, 7 + number, []).operators], 7
    )
    assert count_of(whole) == count_of(again)


def test_short_lived_rows_keep_increments_small() -> None:
    """Places move together again and again, and the many that stay are in no increment for it."""
    home = incremental()
    pairs(home, LEFT, *((key, 100_000) for key in range(6_000)))
    states = [kept(home, 0, 1, [])]
    for turn in range(1, 4):
        pairs(home, LEFT, *((key, 2000 * turn) for key in range(5_000)))
        home.advance(2000 * turn + 1500)
        states.append(kept(home, turn, turn + 1, states))
        assert [len(rows_in(increment)) for increment in states[-1].operators[0].increments] == [0] * turn
    rows_there: Any = home.sides[LEFT].rows
    assert len(rows_there._pieces) < 18_000, "21,000 rows have been here"
    again = incremental(is_fresh=False)
    again.restore(states[-1].operators, 4)
    assert count_of(again) == 6_000


def test_a_side_makes_room_for_what_the_other_has_yet_to_store() -> None:
    """Increments of one side must not take the room of the memory backend that full snapshots of both would have."""
    home = incremental()
    pairs(home, LEFT, *((key, 1000) for key in range(2000)))
    first = kept(home, 0, 1, [])
    pairs(home, RIGHT, *((key, 2000) for key in range(2000)))
    pairs(home, LEFT, *((key, 1000) for key in range(500)))
    frozen: Any = home.snapshot(BY_ITSELF)
    full = sum(column.frozen.to_buffer().size for column in frozen)
    second = kept(home, 1, 2, [first], limit=full)
    assert [operator.increments for operator in second.operators] == [(), ()]
    third = kept(home, 1, 3, [first], limit=2 * full)
    assert [len(operator.increments) for operator in third.operators] == [1, 0]
