"""ArrivingBatches: nothing of a batch is passed on before all of it is there."""

from __future__ import annotations

import pyarrow as pa
from lockgate_proto.messages import EndOfInput, SplitPosition, Watermark
from lockgate_taskmanager.exchange.batches import ArrivingBatches

TABLE = pa.table({"v": [1]})


def test_a_batch_is_passed_on_with_its_last_table() -> None:
    batches = ArrivingBatches(100)
    assert batches.arrived(TABLE, 8, True, ()) == []
    assert batches.received == ()
    assert batches.arrived(TABLE, 9, False, [SplitPosition("a", 7)]) == [(TABLE, 8), (TABLE, 9)]
    assert batches.received == (SplitPosition("a", 7),)


def test_a_lost_sender_leaves_nothing_of_an_incomplete_batch() -> None:
    batches = ArrivingBatches(100)
    batches.arrived(TABLE, 8, False, [SplitPosition("a", 7)])
    batches.arrived(TABLE, 8, True, ())
    batches.drop_part()
    assert batches.waiting_bytes == 0
    assert batches.arrived(TABLE, 3, False, [SplitPosition("a", 9), SplitPosition("b", 1)]) == [(TABLE, 3)]
    assert batches.received == (SplitPosition("a", 9), SplitPosition("b", 1))


def test_the_end_of_a_batch_may_come_in_one_table_with_the_beginning_of_the_next() -> None:
    batches = ArrivingBatches(100)
    assert batches.arrived(TABLE, 8, True, [SplitPosition("a", 7)]) == []
    assert batches.received == ()
    batches.arrived(TABLE, 9, False, [SplitPosition("b", 1)])
    assert batches.received == (SplitPosition("a", 7), SplitPosition("b", 1))


def test_a_batch_that_is_too_large_is_passed_on_in_parts() -> None:
    batches = ArrivingBatches(10)
    assert batches.arrived(TABLE, 8, True, ()) == []
    assert batches.arrived(TABLE, 8, True, ()) == [(TABLE, 8), (TABLE, 8)]
    assert batches.is_torn
    batches.arrived(TABLE, 1, False, [SplitPosition("a", 1)])
    assert not batches.is_torn


def test_other_elements_are_passed_on_at_once() -> None:
    batches = ArrivingBatches(100)
    assert batches.arrived(Watermark(5), 64, False, ()) == [(Watermark(5), 64)]
    assert not batches.has_ended
    batches.arrived(EndOfInput(), 64, False, ())
    assert batches.has_ended
