"""LoopRounds: when a loop is empty. Random schedules of whole loops: tests/property/taskmanager/barrier."""

from __future__ import annotations

import pytest
from lockgate_common.story import IllegalTransition
from lockgate_proto.messages import LoopProbe
from lockgate_taskmanager.task.loop_rounds import LoopEffect, LoopRounds, LoopTerminated, SendProbe

OUTSIDE, BACK = 0, 1


def _head() -> LoopRounds:
    return LoopRounds({OUTSIDE}, (), {BACK}, head_count=1)


def _sent(effects: list[LoopEffect]) -> LoopProbe:
    assert [type(effect) for effect in effects] == [SendProbe]
    assert isinstance(effects[0], SendProbe)
    return effects[0].probe


def test_no_round_begins_before_the_outside_has_ended() -> None:
    head = LoopRounds({0, 1}, (), {2}, 1)
    assert head.ended(0) == []
    assert head.ended(1) == [SendProbe(LoopProbe(1, 0))]


def test_a_loop_is_over_after_three_quiet_rounds_of_its_only_head() -> None:
    head = _head()
    probe = _sent(head.ended(OUTSIDE))
    for quiet in (1, 2):
        probe = _sent(head.probed(BACK, probe))
        assert probe.quiet_rounds == quiet
    assert head.probed(BACK, probe) == [SendProbe(LoopProbe(4, 3)), LoopTerminated()]


def test_a_record_over_the_back_edge_restarts_the_count() -> None:
    head = _head()
    probe = _sent(head.probed(BACK, _sent(head.ended(OUTSIDE))))
    head.records(BACK)
    assert _sent(head.probed(BACK, probe)) == LoopProbe(3, 0)


def test_records_before_the_first_probe_and_from_outside_count_for_nothing() -> None:
    head = LoopRounds({OUTSIDE}, (), {BACK}, 1)
    head.records(BACK)
    head.records(OUTSIDE)
    assert _sent(head.probed(BACK, _sent(head.ended(OUTSIDE)))).quiet_rounds == 1


def test_a_head_is_as_quiet_as_the_least_quiet_one_that_reports_to_it() -> None:
    head = LoopRounds({0}, (), {1, 2}, 1)
    head.ended(0)
    assert head.probed(1, LoopProbe(1, 0)) == []
    second = _sent(head.probed(2, LoopProbe(1, 0)))
    assert second.quiet_rounds == 1
    head.probed(1, LoopProbe(2, 1))
    assert _sent(head.probed(2, LoopProbe(2, 0))).quiet_rounds == 1


def test_an_inner_subtask_passes_a_round_on_when_every_channel_from_inside_has_brought_it() -> None:
    inner = LoopRounds((), {0, 1}, (), 1)
    assert inner.probed(0, LoopProbe(1, 5)) == []
    assert inner.probed(0, LoopProbe(2, 6)) == []  # ahead by a round
    assert inner.probed(1, LoopProbe(1, 3)) == [SendProbe(LoopProbe(1, 3))]
    assert inner.probed(1, LoopProbe(2, 9)) == [SendProbe(LoopProbe(2, 6))]


def test_an_inner_subtask_waits_for_the_end_of_its_own_inputs_from_outside() -> None:
    inner = LoopRounds({1}, {0}, (), 1)
    assert inner.probed(0, LoopProbe(1, 0)) == []
    assert inner.ended(1) == [SendProbe(LoopProbe(1, 0))]


def test_an_inner_subtask_whose_inputs_have_ended_sends_no_probe() -> None:
    inner = LoopRounds((), {0}, (), 1)
    assert inner.ended(0) == []


def test_a_head_whose_loop_is_over_passes_the_rounds_of_others_on() -> None:
    """An inner loop is over, and the outer one around it is still asking."""
    head = LoopRounds((), {0}, {1}, 1)
    probe = _sent(head.probed(0, LoopProbe(1, 0)))
    for number in (2, 3):
        assert head.probed(1, probe) == []
        probe = _sent(head.probed(0, LoopProbe(number, 9)))
    head.probed(1, probe)
    assert head.probed(0, LoopProbe(4, 9)) == [SendProbe(LoopProbe(4, 3)), LoopTerminated()]
    assert head.probed(0, LoopProbe(5, 9)) == [SendProbe(LoopProbe(5, 9))]
    with pytest.raises(IllegalTransition, match="after the loop was found to be empty"):
        head.records(1)


def test_a_probe_out_of_turn_is_refused() -> None:
    inner = LoopRounds((), {0}, (), 1)
    with pytest.raises(IllegalTransition, match="probe 2 arrived on channel 0 after probe 0"):
        inner.probed(0, LoopProbe(2, 0))
    with pytest.raises(IllegalTransition, match="not part of the loop"):
        inner.probed(1, LoopProbe(1, 0))
