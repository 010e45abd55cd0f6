"""BarrierHandler, rule by rule."""

from __future__ import annotations

import pytest
from lockgate_common.story import IllegalTransition
from lockgate_proto.messages import Barrier
from lockgate_taskmanager.barrier.events import (
    Aligned,
    AlignmentAborted,
    AllInputsEnded,
    BarrierArrived,
    CheckpointAborted,
    Deliver,
    ElementArrived,
    Hold,
    InputEnded,
    Release,
)
from lockgate_taskmanager.barrier.handler import AlignmentState, BarrierHandler


def _barrier(handler: BarrierHandler, channel: int, number: int, now_ms: int = 0) -> list[object]:
    return list(handler.handle(BarrierArrived(channel, Barrier(number)), now_ms))


def test_one_channel_aligns_at_once_and_holds_nothing() -> None:
    assert _barrier(BarrierHandler(1), 0, 1, 7) == [Aligned(Barrier(1), 7)]


def test_the_channel_that_delivered_is_held_until_the_last_one_has() -> None:
    handler = BarrierHandler(3)
    assert _barrier(handler, 1, 1, 10) == [Hold(1)]
    assert handler.state is AlignmentState.ALIGNING
    assert handler.handle(ElementArrived(0, "r"), 11) == [Deliver(0, "r")]
    assert _barrier(handler, 0, 1, 12) == [Hold(0)]
    assert _barrier(handler, 2, 1, 20) == [Aligned(Barrier(1), 10), Release((0, 1))]
    assert handler.state is AlignmentState.FLOWING


def test_a_record_of_a_held_channel_is_refused_with_the_story() -> None:
    handler = BarrierHandler(2)
    _barrier(handler, 0, 1)
    with pytest.raises(IllegalTransition, match=r"channel 0 while it is held(.|\n)*barrier 1 on channel 0"):
        handler.handle(ElementArrived(0, "r"), 0)


def test_a_newer_barrier_abandons_the_older_alignment() -> None:
    handler = BarrierHandler(2)
    _barrier(handler, 0, 1, 5)
    effects = _barrier(handler, 1, 2, 9)
    assert isinstance(effects[0], AlignmentAborted)
    assert effects[0].checkpoint_id == 1
    assert effects[1:] == [Release((0,)), Hold(1)]
    assert _barrier(handler, 0, 2, 12) == [Aligned(Barrier(2), 9), Release((1,))]


def test_a_newer_barrier_on_all_other_channels_aligns_in_the_same_step() -> None:
    handler = BarrierHandler(1)
    _barrier(handler, 0, 1)
    assert _barrier(handler, 0, 3, 4) == [Aligned(Barrier(3), 4)]


def test_an_older_barrier_is_ignored() -> None:
    handler = BarrierHandler(2)
    _barrier(handler, 0, 2)
    assert _barrier(handler, 1, 1) == []
    assert handler.held == {0}


def test_a_barrier_twice_is_ignored() -> None:
    handler = BarrierHandler(1)
    _barrier(handler, 0, 1)
    assert _barrier(handler, 0, 1) == []


def test_an_abort_notice_releases_and_is_not_declined() -> None:
    handler = BarrierHandler(2)
    _barrier(handler, 0, 1)
    assert handler.handle(CheckpointAborted(1), 0) == [Release((0,))]
    assert _barrier(handler, 1, 1) == []


def test_an_abort_notice_before_the_barriers_makes_them_ignored() -> None:
    handler = BarrierHandler(2)
    assert handler.handle(CheckpointAborted(1), 0) == []
    assert _barrier(handler, 0, 1) == []
    assert _barrier(handler, 1, 1) == []
    assert _barrier(handler, 0, 2) == [Hold(0)]


def test_a_late_abort_notice_of_an_aligned_checkpoint_changes_nothing() -> None:
    handler = BarrierHandler(1)
    _barrier(handler, 0, 1)
    assert handler.handle(CheckpointAborted(1), 0) == []
    assert _barrier(handler, 0, 2) == [Aligned(Barrier(2), 0)]


def test_an_abort_notice_with_all_earlier_ones_releases_an_older_alignment() -> None:
    """A new leader does not know which ones a dead leader has triggered, only up to which id they go."""
    handler = BarrierHandler(2)
    _barrier(handler, 0, 2)
    assert handler.handle(CheckpointAborted(5, and_earlier=True), 0) == [Release((0,))]
    for number in (2, 3, 5):
        assert _barrier(handler, 0, number) + _barrier(handler, 1, number) == []
    assert _barrier(handler, 0, 6) == [Hold(0)]
    assert handler.handle(CheckpointAborted(5, and_earlier=True), 0) == [], "that is a newer one"
    assert handler.held == {0}


def test_an_abort_notice_of_another_checkpoint_keeps_the_alignment() -> None:
    handler = BarrierHandler(2)
    _barrier(handler, 0, 2)
    assert handler.handle(CheckpointAborted(1), 0) == []
    assert handler.held == {0}


def test_barriers_still_align_after_end_of_input() -> None:
    handler = BarrierHandler(2)
    assert handler.handle(InputEnded(0), 0) == []
    assert handler.handle(InputEnded(1), 0) == [AllInputsEnded()]
    assert _barrier(handler, 0, 1) == [Hold(0)]
    assert _barrier(handler, 1, 1) == [Aligned(Barrier(1), 0), Release((0,))]


def test_end_of_input_twice_counts_once() -> None:
    handler = BarrierHandler(1)
    assert handler.handle(InputEnded(0), 0) == [AllInputsEnded()]
    assert handler.handle(InputEnded(0), 0) == []


def test_a_record_after_end_of_input_is_refused() -> None:
    handler = BarrierHandler(1)
    handler.handle(InputEnded(0), 0)
    with pytest.raises(IllegalTransition, match="after its end of input"):
        handler.handle(ElementArrived(0, "r"), 0)


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(IllegalTransition, match="there are 1"):
        _barrier(BarrierHandler(1), 1, 1)


def test_kind_and_terminal_travel_with_the_barrier() -> None:
    barrier = Barrier(4, terminal=True, triggered_unix_ms=99)
    assert BarrierHandler(1).handle(BarrierArrived(0, barrier), 0) == [Aligned(barrier, 0)]
