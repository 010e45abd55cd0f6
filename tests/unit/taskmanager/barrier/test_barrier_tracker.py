"""BarrierTracker, rule by rule: at-least-once barriers hold nothing back."""

from __future__ import annotations

import pytest
from lockgate_common.story import IllegalTransition
from lockgate_proto.messages import Barrier, CheckpointMode, CheckpointOptions, JobGraph
from lockgate_taskmanager.barrier.events import (
    Aligned,
    AlignmentAborted,
    AllInputsEnded,
    BarrierArrived,
    CheckpointAborted,
    Deliver,
    ElementArrived,
    InputEnded,
)
from lockgate_taskmanager.barrier.handler import BarrierHandler
from lockgate_taskmanager.barrier.modes import barriers_for, mode_of
from lockgate_taskmanager.barrier.tracker import BarrierTracker


def _barrier(tracker: BarrierTracker, channel: int, number: int, now_ms: int = 0) -> list[object]:
    return list(tracker.handle(BarrierArrived(channel, Barrier(number)), now_ms))


def test_nothing_is_held_back_while_barriers_are_missing() -> None:
    tracker = BarrierTracker(2)
    assert _barrier(tracker, 0, 1, 5) == []
    assert tracker.handle(ElementArrived(0, "after the barrier"), 6) == [Deliver(0, "after the barrier")]
    assert tracker.held == frozenset()
    assert _barrier(tracker, 1, 1, 9) == [Aligned(Barrier(1), 5)]


def test_a_fast_channel_may_be_several_checkpoints_ahead() -> None:
    tracker = BarrierTracker(2)
    assert _barrier(tracker, 0, 1) == []
    assert _barrier(tracker, 0, 2, 3) == []
    assert _barrier(tracker, 1, 1) == [Aligned(Barrier(1), 0)]
    assert _barrier(tracker, 1, 2) == [Aligned(Barrier(2), 3)]


def test_a_checkpoint_whose_barrier_one_channel_never_sent_is_given_up_with_the_next_one() -> None:
    tracker = BarrierTracker(2)
    _barrier(tracker, 0, 1)
    _barrier(tracker, 0, 2)
    lost, aligned = _barrier(tracker, 1, 2)
    assert isinstance(lost, AlignmentAborted)
    assert lost.checkpoint_id == 1
    assert aligned == Aligned(Barrier(2), 0)
    assert _barrier(tracker, 1, 1) == []


def test_barriers_of_an_aborted_checkpoint_are_dropped_before_and_after_the_first() -> None:
    tracker = BarrierTracker(2)
    tracker.handle(CheckpointAborted(1), 0)
    assert _barrier(tracker, 0, 1) + _barrier(tracker, 1, 1) == []
    _barrier(tracker, 0, 2)
    tracker.handle(CheckpointAborted(2), 0)
    assert _barrier(tracker, 1, 2) == []
    assert _barrier(tracker, 0, 3) == []
    assert _barrier(tracker, 1, 3) == [Aligned(Barrier(3), 0)]


def test_barriers_up_to_an_aborted_checkpoint_are_dropped_with_all_earlier_ones() -> None:
    tracker = BarrierTracker(2)
    _barrier(tracker, 0, 2)
    _barrier(tracker, 0, 6)
    assert tracker.handle(CheckpointAborted(5, and_earlier=True), 0) == []
    for number in (2, 3, 5):
        assert _barrier(tracker, 1, number) + _barrier(tracker, 0, number) == []
    assert _barrier(tracker, 1, 6) == [Aligned(Barrier(6), 0)]


def test_a_barrier_that_arrives_twice_counts_once() -> None:
    tracker = BarrierTracker(2)
    assert _barrier(tracker, 0, 1) + _barrier(tracker, 0, 1) == []
    assert len(_barrier(tracker, 1, 1)) == 1
    assert _barrier(tracker, 1, 1) == []


def test_barriers_continue_after_the_end_of_input_and_records_do_not() -> None:
    tracker = BarrierTracker(2)
    assert tracker.handle(InputEnded(0), 0) == []
    assert _barrier(tracker, 0, 1) == []
    assert _barrier(tracker, 1, 1) == [Aligned(Barrier(1), 0)]
    assert tracker.handle(InputEnded(1), 0) == [AllInputsEnded()]
    with pytest.raises(IllegalTransition, match="after its end of input"):
        tracker.handle(ElementArrived(0, "r"), 0)
    with pytest.raises(IllegalTransition, match="there are 2"):
        tracker.handle(InputEnded(2), 0)


def test_a_graph_that_asks_for_no_mode_is_exactly_once() -> None:
    assert mode_of(JobGraph()) is CheckpointMode.EXACTLY_ONCE
    assert isinstance(barriers_for(mode_of(JobGraph(checkpoints=CheckpointOptions())), 1), BarrierHandler)
    loose = JobGraph(checkpoints=CheckpointOptions(mode=CheckpointMode.AT_LEAST_ONCE))
    assert isinstance(barriers_for(mode_of(loose), 1), BarrierTracker)
