"""The buffers of an interval join: what costs what, what a snapshot holds, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_proto.messages import IntervalJoin, JoinSide, StateHandle

from taskmanager.state.backend import InlineBackend
from taskmanager.state.buffered import BufferedRows
from taskmanager.state.join_store import JoinStore
from taskmanager.state.pieces import Pieces
from taskmanager.task.program import StateUnreadable, UserError
from taskmanager.task.watermarks import MAX_WATERMARK

LEFT, RIGHT = JoinSide.LEFT, JoinSide.RIGHT
JOIN = IntervalJoin(("k",), ("k",), "at", "at", -5, 10)


def rows(*records: tuple[int | None, int | None], value: str = "v") -> pa.Table:
    """(key, time) each; the key is its own hash."""
    keys, times = [key for key, _ in records], [time for _, time in records]
    names = ["k", value, "__hash", "__event_time"]
    hashes = [(key or 0) * 0x9E3779B97F4A7C15 % 2**63 for key in keys]
    return pa.table([pa.array(one, pa.int64()) for one in (keys, times, hashes, times)], names=names)


def store(join: IntervalJoin = JOIN, groups: range = range(8)) -> JoinStore:
    made = JoinStore("match", join, 8, groups)
    made.accept(LEFT, rows(value="l").schema)
    made.accept(RIGHT, rows(value="r").schema)
    return made


def pairs(home: JoinStore, side: JoinSide, *records: tuple[int | None, int | None]) -> list[tuple[int, int]]:
    found = home.merge(side, rows(*records, value="l" if side is LEFT else "r")).pairs
    return sorted((row["l"], row["r"]) for table in found for row in table.to_pylist())


def test_both_ends_of_the_interval_are_in_it() -> None:
    home = store()
    assert pairs(home, LEFT, (1, 100)) == []
    assert pairs(home, RIGHT, (1, 94), (1, 95), (1, 110), (1, 111), (2, 100)) == [(100, 95), (100, 110)]
    assert pairs(home, LEFT, (1, 101), (None, 100)) == [(101, 110), (101, 111)]


def test_a_row_waits_until_no_partner_can_come() -> None:
    home = store()
    pairs(home, LEFT, (1, 100))
    home.advance(109)
    assert pairs(home, RIGHT, (1, 110)) == [(100, 110)]
    home.advance(110)
    assert home.merge(RIGHT, rows((1, 110), (1, None), value="r")).dropped == 2, "too late, and without a time"
    state = home.snapshot()
    assert [len(one.rows.to_buffer()) > 0 for one in state] == [True, True]
    again = store()
    again.restore([one.persist(1, InlineBackend(1 << 20).writer(1)) for one in state])
    assert len(again) == 1, "of the right, whose left may still come; the left row is over"


def test_what_can_only_find_partners_in_the_past_is_not_kept() -> None:
    home = store(replace(JOIN, lower_ms=-10, upper_ms=-5))
    pairs(home, RIGHT, (1, 92))
    home.advance(99)
    assert pairs(home, LEFT, (1, 100)) == [(100, 92)]
    assert len(home) == 1


def test_the_end_of_the_input_is_no_event_time() -> None:
    home = store()
    pairs(home, LEFT, (1, 100))
    home.advance(99)
    home.advance(MAX_WATERMARK)
    again = store()
    again.restore([one.persist(1, InlineBackend(1 << 20).writer(1)) for one in home.snapshot()])
    assert pairs(again, RIGHT, (1, 101)) == [(100, 101)]


@pytest.mark.parametrize(
    ("join", "held"), [(JOIN, 10), (replace(JOIN, upper_ms=0), 5), (replace(JOIN, lower_ms=3), 10)]
)
def test_the_watermark_is_held_back_by_the_longer_way(join: IntervalJoin, held: int) -> None:
    assert store(join).held_back_ms == held
    assert store(IntervalJoin(("k",), ("k",), "at", "at", -9, -3)).held_back_ms == 9


def test_a_look_up_costs_by_the_candidates_and_not_by_what_waits() -> None:
    schema = pa.schema([("v", pa.int64())])
    home = BufferedRows(schema, 10)
    count = 100_000
    times = np.arange(count)
    home.add(pa.record_batch([pa.array(times)], schema=schema), np.full(count, 7), times)
    positions, _, counts = home._candidates(np.array([7]), np.array([50_000]), np.array([50_009]))
    assert counts.sum() <= 20
    assert set(positions.tolist()) == {0}


def test_forgotten_rows_give_their_place_back() -> None:
    schema = pa.schema([("v", pa.int64())])
    home = BufferedRows(schema, 1000)
    for start in range(0, 200_000, 5_000):
        times = np.arange(start, start + 5_000)
        home.add(pa.record_batch([pa.array(times)], schema=schema), np.full(5_000, 7), times)
        home.forget(start - 5_000)
    assert len(home._pieces) < 30_000
    found = [rows for _, rows in home.near(np.array([7]), np.array([199_000]), np.array([199_999]))]
    assert sorted(home.take(np.concatenate(found)).column("v").to_pylist()) == list(range(199_000, 200_000))


def test_pieces_are_few_and_any_rows_come_in_the_order_asked_for() -> None:
    schema = pa.schema([("v", pa.string())])
    pieces = Pieces(schema)
    for number in range(1000):
        pieces.append(pa.record_batch([pa.array([str(3 * number + one) for one in range(3)])], schema=schema))
    assert len(pieces) == 3000
    assert len(pieces._pieces) < 15
    asked = np.array([2999, 0, 1500, 1500, 7])
    assert pieces.take(asked).column("v").to_pylist() == [str(one) for one in asked]
    assert pieces.take(asked[:0]).num_rows == 0


def test_another_join_is_not_restored() -> None:
    home = store()
    pairs(home, LEFT, (1, 100))
    state = [one.persist(1, InlineBackend(1 << 20).writer(1)) for one in home.snapshot()]
    again = store(replace(JOIN, right_prefix="r_"))
    again.restore(state)
    assert len(again) == 1, "names of results may change"
    with pytest.raises(StateUnreadable, match="keep keys, times and bounds as they were"):
        store(replace(JOIN, upper_ms=11)).restore(state)
    with pytest.raises(StateUnreadable, match="is missing in the checkpoint"):
        store().restore([replace(state[0], handle=None)])
    with pytest.raises(StateUnreadable, match="cannot be read as keyed state"):
        store().restore([replace(state[0], handle=StateHandle(inline=b"nonsense"))])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"K": pa.string()}, "left 'k' is int64, right 'K' is string"),
        ({"no": pa.int64()}, "the right side of the join has no column 'k'; its columns are: no"),
        ({"k": pa.list_(pa.int64())}, "column 'k' of type list<item: int64> cannot be a key"),
    ],
)
def test_sides_that_do_not_fit_are_refused(schema: dict[str, Any], message: str) -> None:
    home = JoinStore("match", JOIN, 8, range(8))
    home.accept(LEFT, rows().schema)
    assert home.schema() is None
    with pytest.raises(UserError, match=message):
        home.accept(RIGHT, pa.schema(list(schema.items())))
