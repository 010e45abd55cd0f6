"""Barriers that overtake, rule by rule: what BarrierHandler decides, and what a ChannelRecording keeps."""

from __future__ import annotations

import pytest
from lockgate_common.story import IllegalTransition
from lockgate_proto.messages import Barrier, EndOfInput, Watermark
from lockgate_taskmanager.barrier.events import (
    Aligned,
    AlignmentAborted,
    BarrierArrived,
    BarrierOvertakes,
    CheckpointAborted,
    Effect,
    Hold,
    Overtaken,
    Release,
)
from lockgate_taskmanager.barrier.handler import BarrierHandler
from lockgate_taskmanager.barrier.recording import ChannelRecording
from lockgate_taskmanager.barrier.tracker import BarrierTracker

NONE: frozenset[int] = frozenset()


def _urgent(number: int) -> Barrier:
    return Barrier(number, unaligned=True)


def _arrive(handler: BarrierHandler, channel: int, barrier: Barrier, now_ms: int = 0) -> list[Effect]:
    return handler.handle(BarrierArrived(channel, barrier), now_ms)


def test_the_first_unaligned_barrier_takes_the_snapshot_and_holds_nothing() -> None:
    handler = BarrierHandler(3)
    assert _arrive(handler, 1, _urgent(1), 7) == [Overtaken(_urgent(1), 7, frozenset({1}))]
    assert handler.held == NONE
    assert _arrive(handler, 0, _urgent(1)) + _arrive(handler, 2, _urgent(1)) == []


def test_the_leaders_word_takes_the_snapshot_before_any_barrier_is_there() -> None:
    handler = BarrierHandler(2)
    assert handler.handle(BarrierOvertakes(_urgent(1)), 5) == [Overtaken(_urgent(1), 5, NONE)]
    assert handler.handle(BarrierOvertakes(_urgent(1)), 6) == []
    assert _arrive(handler, 0, Barrier(1)) == []


def test_an_alignment_that_times_out_turns_unaligned_and_releases_its_channels() -> None:
    handler = BarrierHandler(3)
    assert _arrive(handler, 2, Barrier(1), 3) == [Hold(2)]
    assert handler.handle(BarrierOvertakes(_urgent(1)), 9) == [
        Overtaken(_urgent(1), 3, frozenset({2})),
        Release((2,)),
    ]
    assert _arrive(handler, 0, Barrier(1)) == []


def test_a_checkpoint_that_is_aligned_or_aborted_cannot_be_overtaken() -> None:
    handler = BarrierHandler(1)
    assert _arrive(handler, 0, Barrier(1), 4) == [Aligned(Barrier(1), 4)]
    handler.handle(CheckpointAborted(2), 0)
    assert handler.handle(BarrierOvertakes(_urgent(1)), 5) + handler.handle(BarrierOvertakes(_urgent(2)), 5) == []


def test_a_newer_unaligned_barrier_abandons_an_older_alignment() -> None:
    handler = BarrierHandler(2)
    _arrive(handler, 0, Barrier(1))
    lost, released, taken = handler.handle(BarrierOvertakes(_urgent(2)), 8)
    assert isinstance(lost, AlignmentAborted)
    assert (lost.checkpoint_id, released, taken) == (1, Release((0,)), Overtaken(_urgent(2), 8, NONE))


def test_at_least_once_nothing_overtakes() -> None:
    with pytest.raises(IllegalTransition, match="a mode that holds no channel"):
        BarrierTracker(1).handle(BarrierOvertakes(_urgent(1)), 0)


def test_a_recording_keeps_records_and_watermarks_up_to_the_barrier_of_each_channel() -> None:
    recording = ChannelRecording(2, 3, {2})
    for element in ("a", Watermark(5), Barrier(1), EndOfInput(), "b", _urgent(2), "after"):
        recording.arrived(0, element, 1)
    recording.arrived(2, "its barrier was there before", 1)
    assert not recording.is_complete
    recording.arrived(1, _urgent(2), 1)
    assert recording.is_complete
    assert recording.channels() == {0: ("a", Watermark(5), "b")}


def test_a_recording_beyond_its_bound_releases_everything() -> None:
    recording = ChannelRecording(1, 1, (), limit_bytes=10)
    recording.arrived(0, "a", 10)
    assert not recording.has_overflowed
    recording.arrived(0, "b", 1)
    assert recording.has_overflowed
    assert recording.channels() == {}
