"""Barriers in cyclic dataflows, statement by statement of arXiv 1506.08603, section 4.3, and what it leaves open."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import Barrier, CheckpointMode, EndOfInput, LoopProbe
from lockgate_taskmanager.barrier.events import (
    Aligned,
    AllInputsEnded,
    BarrierArrived,
    CheckpointAborted,
    Deliver,
    Effect,
    ElementArrived,
    Hold,
    InputEnded,
    LoopEnded,
    Overtaken,
    Release,
)
from lockgate_taskmanager.barrier.handler import BarrierHandler
from lockgate_taskmanager.barrier.modes import barriers_for
from lockgate_taskmanager.barrier.recording import ChannelRecording

BACK = frozenset({2})  # of channels 0, 1 and 2


def _arrive(handler: BarrierHandler, channel: int, number: int, now_ms: int = 0) -> list[Effect]:
    return handler.handle(BarrierArrived(channel, Barrier(number)), now_ms)


def _head() -> BarrierHandler:
    return BarrierHandler(3, BACK)


def test_a_head_takes_its_snapshot_when_all_its_regular_inputs_have_brought_the_barrier() -> None:
    head = _head()
    assert _arrive(head, 0, 1, 5) == [Hold(0)]
    assert _arrive(head, 1, 1, 9) == [Overtaken(Barrier(1), 5, frozenset({0, 1})), Release((0,))]


def test_records_of_a_back_edge_flow_on_while_regular_inputs_are_aligned() -> None:
    head = _head()
    _arrive(head, 0, 1)
    assert head.handle(ElementArrived(2, "record"), 0) == [Deliver(2, "record")]


def test_every_record_of_a_back_edge_between_the_snapshot_and_its_barrier_is_in_the_log() -> None:
    log = ChannelRecording(1, 3, delivered={0, 1})
    log.arrived(0, "from outside", 1)
    log.arrived(2, "in transit", 1)
    assert not log.is_complete
    log.arrived(2, Barrier(1), 1)
    log.arrived(2, "of the next snapshot", 1)
    assert log.is_complete
    assert log.channels() == {2: ("in transit",)}


def test_the_returning_barrier_has_no_further_effect() -> None:
    head = _head()
    _arrive(head, 0, 1)
    _arrive(head, 1, 1)
    assert _arrive(head, 2, 1) == []
    assert head.held == frozenset()


def test_a_back_edge_that_is_ahead_is_held_and_has_no_log() -> None:
    """Another subtask of the head was faster: what follows its barrier is of after the snapshot."""
    head = _head()
    assert _arrive(head, 2, 1, 3) == [Hold(2)]
    assert _arrive(head, 0, 1, 4) == [Hold(0)]
    assert _arrive(head, 1, 1, 5) == [Aligned(Barrier(1), 3), Release((0, 2))]


def test_of_two_back_edges_only_the_one_behind_has_a_log() -> None:
    head = BarrierHandler(3, frozenset({1, 2}))
    assert _arrive(head, 1, 1, 3) == [Hold(1)]
    assert _arrive(head, 0, 1, 4) == [Overtaken(Barrier(1), 3, frozenset({0, 1})), Release((1,))]


def test_the_next_snapshot_may_begin_before_the_log_of_the_last_one_is_complete() -> None:
    head = BarrierHandler(2, frozenset({1}))
    assert _arrive(head, 0, 1) == [Overtaken(Barrier(1), 0, frozenset({0}))]
    assert _arrive(head, 0, 2) == [Overtaken(Barrier(2), 0, frozenset({0}))]
    first, second = (ChannelRecording(number, 2, delivered={0}) for number in (1, 2))
    for element in ("a", Barrier(1), "b", Barrier(2), "c"):
        for log in (first, second):
            log.arrived(1, element, 1)
    assert (first.channels(), second.channels()) == ({1: ("a",)}, {1: ("a", "b")})


def test_an_abort_releases_a_back_edge_that_was_ahead() -> None:
    head = _head()
    _arrive(head, 2, 1)
    assert head.handle(CheckpointAborted(1), 0) == [Release((2,))]
    assert _arrive(head, 0, 1) == []


def test_the_input_ends_when_the_outside_has_ended_and_no_record_circulates() -> None:
    head = _head()
    assert head.handle(InputEnded(0), 0) + head.handle(InputEnded(1), 0) == []
    assert head.handle(LoopEnded(), 0) == [AllInputsEnded()]


def test_the_loop_may_end_while_a_back_edge_is_held() -> None:
    head = _head()
    head.handle(InputEnded(0), 0)
    head.handle(InputEnded(1), 0)
    _arrive(head, 2, 1)
    assert head.handle(LoopEnded(), 0) == [AllInputsEnded()]
    _arrive(head, 0, 1)
    assert _arrive(head, 1, 1) == [Aligned(Barrier(1), 0), Release((0, 2))]


def test_probes_and_ends_of_input_are_in_no_log() -> None:
    log = ChannelRecording(1, 1, delivered=())
    log.arrived(0, LoopProbe(1, 0), 1)
    log.arrived(0, EndOfInput(), 1)
    assert log.channels() == {}


def test_a_head_without_an_input_from_outside_would_never_align() -> None:
    with pytest.raises(ValueError, match="not a back edge"):
        barriers_for(CheckpointMode.EXACTLY_ONCE, 1, frozenset({0}))
