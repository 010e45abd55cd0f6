"""Outbox: what a channel sends, and what it keeps for another attempt of its receiver."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lockgate_proto.messages import Barrier, EndOfInput, ExchangeSignal, SplitPosition, SplitRange
from lockgate_taskmanager.exchange import elements
from lockgate_taskmanager.exchange.elements import ALONE, BatchPiece, Element
from lockgate_taskmanager.exchange.errors import CannotRejoin, RecordTooLarge
from lockgate_taskmanager.exchange.outbox import Outbox
from lockgate_taskmanager.exchange.replay_log import ReplayLog, Sent

READ = (SplitPosition("a", 7),)
RANGE = [SplitRange("a", 3, 7)]
HAS_HAD = ExchangeSignal(accepted=True, received=READ)
HAS_ENDED = ExchangeSignal(accepted=True, received=READ, ended=True)


def outbox(message_bytes: int = 1_000, log_bytes: int = 1_000) -> Outbox:
    """With a log."""
    return Outbox(1_000, 10, ReplayLog(log_bytes), message_bytes)


def give(box: Outbox, element: Element, place: BatchPiece = ALONE, *, is_had: bool = False) -> None:
    """Adds all pieces of an element."""
    for piece in box.pieces(element, place):
        box.add(piece, is_had=is_had)


def table(*values: int) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.int64())})


def taken(box: Outbox) -> list[Sent]:
    """What it sends."""
    found = []
    while box.queue:
        found.append(box.take())
    return found


def test_only_the_last_piece_of_a_table_says_how_far_it_was_read() -> None:
    box = outbox(message_bytes=16)
    give(box, table(1, 2, 3, 4), BatchPiece(ranges=tuple(RANGE)))
    assert [(sent.more, sent.read_to) for sent in taken(box)] == [(True, ()), (False, READ)]


def test_a_channel_without_a_log_says_nothing_of_positions() -> None:
    box = Outbox(1_000, 10, message_bytes=16)
    give(box, table(1, 2, 3, 4), BatchPiece(more=True, ranges=tuple(RANGE)))
    assert [(sent.more, sent.read_to) for sent in taken(box)] == [(False, ()), (False, ())]


def test_what_the_receiver_has_had_is_only_for_another_attempt_of_it() -> None:
    box = outbox()
    box.accepted(HAS_HAD)
    assert box.has_had(RANGE)
    assert not box.has_had([SplitRange("a", 7, 8)])
    give(box, table(1), is_had=True)
    assert not box.queue
    give(box, table(2))
    box.broke("it died", for_good=False)
    box.rejoined("count[0]", 0)
    assert [sent.element.to_pydict()["v"] for sent in taken(box)] == [[1, 2]]


def test_a_receiver_that_has_had_the_end_gets_only_barriers() -> None:
    box = outbox()
    box.accepted(HAS_ENDED)
    for element in (table(1), Barrier(3), EndOfInput()):
        give(box, element)
    assert [sent.element for sent in taken(box)] == [Barrier(3)]


def test_another_attempt_of_the_receiver_has_had_nothing_before_it_answers() -> None:
    box = outbox()
    box.accepted(HAS_ENDED)
    box.rejoined("count[0]", 0)
    assert not box.has_had(RANGE)
    give(box, EndOfInput())
    assert [sent.element for sent in taken(box)] == [EndOfInput()]


def test_a_channel_without_its_receiver_sends_nothing_and_keeps_everything() -> None:
    box = outbox(log_bytes=200)
    give(box, table(0))
    give(box, Barrier(1))
    box.broke("it died", for_good=False)
    assert not box.is_over
    assert not box.queue
    give(box, table(1))
    assert not taken(box)
    assert not box.fits(100)
    box.rejoined("count[0]", 1)
    assert [sent.element for sent in taken(box)] == [table(1)]


def test_a_channel_that_is_over_for_good_cannot_be_joined_again() -> None:
    box = outbox()
    box.broke("it is refused", for_good=True)
    assert box.is_over
    with pytest.raises(CannotRejoin, match=r"count\[0\]"):
        box.rejoined("count[0]", 0)


def test_a_log_that_was_too_small_is_named_with_its_size_and_the_setting() -> None:
    box = outbox(log_bytes=4)
    give(box, table(1))
    box.broke("it died", for_good=False)
    with pytest.raises(CannotRejoin, match=r"is not kept: it is more than 4 B, .* of taskmanager\.replay_log_bytes"):
        box.rejoined("count[0]", 0)


def test_a_record_that_no_message_carries_is_refused_where_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "LARGEST_MESSAGE_BYTES", 2_000)
    for box in (outbox(), Outbox(1_000, 10, message_bytes=1_000)):
        with pytest.raises(RecordTooLarge, match="make the values smaller before the records leave this operator"):
            give(box, pa.table({"v": ["fits", "x" * 3_000]}))
        assert not box.queue
