"""Events to times since the kill."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import replace

import pytest
from lockgate_devtools.drill.model import Kill, Mode, Target
from lockgate_devtools.drill.timeline import (
    Before,
    assemble,
    checkpoint_counts,
    has_committed,
    history_problems,
    is_survived,
    righted,
)
from lockgate_proto.messages import JobEvent, JobEventKind

KILL_US = 1_700_000_000_000_000
BEFORE = Before(KILL_US, token=7, attempt=3)


def _event(kind: JobEventKind, ms: float, *, token: int = 8, attempt: int = 4, checkpoint: int = 0) -> JobEvent:
    return JobEvent(kind, KILL_US + round(ms * 1000), attempt, checkpoint, token)


TAKEOVER = (
    _event(JobEventKind.LEADER_LOSS_DETECTED, 2.5),
    _event(JobEventKind.LEADER_GRANTED, 8.0),
    _event(JobEventKind.JOB_RECOVERED, 20.0),
    _event(JobEventKind.ATTEMPT_DEPLOYED, 150.0),
    _event(JobEventKind.FIRST_RECORD, 290.0),
    _event(JobEventKind.CHECKPOINT_COMPLETED, 1290.0, checkpoint=12),
)


def test_a_takeover_gives_every_time() -> None:
    kill = assemble(Target.LEADER, 4711, BEFORE, TAKEOVER)
    assert kill == Kill(Target.LEADER, 4711, 2.5, 8.0, 150.0, 290.0, 1290.0, Mode.RESTART)
    assert is_survived(kill)
    for mode in (Mode.REGION, Mode.PARTIAL):
        link = replace(kill, target=Target.LINK_TASKMANAGERS, mode=mode)
        assert is_survived(link)
        assert not is_survived(replace(link, first_record_ms=None)), "a part has restarted, and nothing came out of it"


def test_order_and_repetition_of_events_do_not_matter() -> None:
    events = list(TAKEOVER * 2)
    random.Random(3).shuffle(events)
    assert assemble(Target.LEADER, 4711, BEFORE, events) == assemble(Target.LEADER, 4711, BEFORE, TAKEOVER)


def test_the_work_of_the_failed_leader_does_not_count_as_takeover() -> None:
    old = (
        _event(JobEventKind.CHECKPOINT_COMPLETED, -5.0, token=7, attempt=3, checkpoint=10),
        # in flight at the kill: stamped after it, but by the old leader
        _event(JobEventKind.CHECKPOINT_COMPLETED, 0.2, token=7, attempt=3, checkpoint=11),
        _event(JobEventKind.FIRST_RECORD, 0.3, token=7, attempt=3),
    )
    kill = assemble(Target.LEADER, 1, BEFORE, old)
    assert kill == Kill(Target.LEADER, 1)
    assert not is_survived(kill)


def test_the_first_of_several_attempts_counts() -> None:
    second = (
        _event(JobEventKind.FIRST_RECORD, 900.0, attempt=5),
        _event(JobEventKind.ATTEMPT_DEPLOYED, 700, attempt=5),
    )
    assert assemble(Target.LEADER, 1, BEFORE, (*second, *TAKEOVER)).first_record_ms == 290.0


def test_an_adopted_attempt_has_no_first_record_and_is_survived_by_its_next_checkpoint() -> None:
    adopted = (
        *TAKEOVER[:3],
        _event(JobEventKind.ATTEMPT_ADOPTED, 30.0, attempt=3),
        _event(JobEventKind.ATTEMPT_DEPLOYED, 33.0, attempt=3),
        _event(JobEventKind.CHECKPOINT_COMPLETED, 0.2, token=7, attempt=3, checkpoint=11),  # of the dead leader
    )
    kill = assemble(Target.LEADER, 1, BEFORE, adopted)
    assert kill == Kill(Target.LEADER, 1, 2.5, 8.0, 33.0, mode=Mode.REATTACH)
    assert not is_survived(kill)
    next_one = _event(JobEventKind.CHECKPOINT_COMPLETED, 700.0, attempt=3, checkpoint=12)
    kill = assemble(Target.LEADER, 1, BEFORE, (*adopted, next_one))
    assert (kill.first_checkpoint_ms, kill.first_record_ms) == (700.0, None)
    assert is_survived(kill)


def test_a_task_manager_causes_no_grant() -> None:
    events = (
        _event(JobEventKind.TASK_MANAGER_LOST, 3.0, token=7, attempt=3),
        _event(JobEventKind.LEADER_GRANTED, 5.0),  # not of this kill
        _event(JobEventKind.ATTEMPT_DEPLOYED, 80.0, token=7),
        _event(JobEventKind.FIRST_RECORD, 400.0, token=7),
        _event(JobEventKind.CHECKPOINT_COMPLETED, 600.0, token=7, attempt=3, checkpoint=4),  # of the dead attempt
        _event(JobEventKind.CHECKPOINT_COMPLETED, 1400.0, token=7, checkpoint=5),
    )
    kill = assemble(Target.TASKMANAGER, 9, BEFORE, events)
    assert kill == Kill(Target.TASKMANAGER, 9, 3.0, None, 80.0, 400.0, 1400.0, Mode.RESTART)


def test_a_standby_or_zookeeper_kill_only_has_a_next_checkpoint() -> None:
    events = (_event(JobEventKind.CHECKPOINT_COMPLETED, 700.0, token=7, attempt=3), *TAKEOVER)
    for target in (Target.STANDBY, Target.ZOOKEEPER):
        kill = assemble(target, 9, BEFORE, events)
        assert kill == Kill(target, 9, first_checkpoint_ms=700.0)
        assert is_survived(kill)


def test_a_kill_is_not_survived_before_its_first_checkpoint() -> None:
    assert not is_survived(assemble(Target.LEADER, 1, BEFORE, TAKEOVER[:-1]))
    assert not is_survived(assemble(Target.LEADER, 1, BEFORE, (TAKEOVER[-1],)))


def test_a_checkpoint_counts_once_and_completed_wins() -> None:
    events = (
        _event(JobEventKind.CHECKPOINT_COMPLETED, 1, checkpoint=1),
        _event(JobEventKind.CHECKPOINT_COMPLETED, 1, checkpoint=1),
        _event(JobEventKind.CHECKPOINT_ABORTED, 2, checkpoint=1),
        _event(JobEventKind.CHECKPOINT_ABORTED, 2, checkpoint=2),
        _event(JobEventKind.CHECKPOINT_COMPLETED, 3, checkpoint=3),
    )
    assert checkpoint_counts(events) == (2, 1)


def _done(checkpoint: int, ms: float, token: int = 8, attempt: int = 4) -> JobEvent:
    return _event(JobEventKind.CHECKPOINT_COMPLETED, ms, token=token, attempt=attempt, checkpoint=checkpoint)


def test_a_history_of_one_leader_after_the_other_has_no_problems() -> None:
    before = (_event(JobEventKind.LEADER_GRANTED, -900.0, token=7), _done(10, -5.0, 7, 3), _done(11, 3.0, 7, 3))
    assert history_problems((*TAKEOVER, *before, *TAKEOVER)) == ()


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (_event(JobEventKind.LEADER_GRANTED, 2_000.0, token=8), "token 8 was granted after token 8"),
        (_event(JobEventKind.LEADER_GRANTED, 2_000.0, token=7), "token 7 was granted after token 8"),
        (_done(12, 2_000.0, token=9), "checkpoint 12 was completed by several leaders or attempts"),
        (_done(12, 2_000.0, attempt=5), "checkpoint 12 was completed by several leaders or attempts"),
        (_done(11, 2_000.0, token=9), "checkpoint 11 was completed under token 9, after checkpoint 12"),
        (_done(13, 2_000.0, token=7), "checkpoint 12 was completed under token 8, after checkpoint 13"),
    ],
)
def test_what_no_failure_may_lead_to_is_a_problem(event: JobEvent, problem: str) -> None:
    (found,) = history_problems((*TAKEOVER, event))
    assert problem in found


CUTS = [target for target in Target if target.is_link]


@pytest.mark.parametrize("target", CUTS)
def test_a_cut_link_after_which_nothing_restarts_has_only_a_checkpoint(target: Target) -> None:
    events = (_event(JobEventKind.CHECKPOINT_COMPLETED, 6400.0, token=7, attempt=3, checkpoint=11),)
    kill = assemble(target, 0, BEFORE, events)
    assert kill == Kill(target, 0, first_checkpoint_ms=6400.0)
    assert is_survived(kill)


@pytest.mark.parametrize("target", CUTS)
def test_a_cut_link_may_cost_the_leader_or_the_attempt(target: Target) -> None:
    lead = assemble(target, 0, BEFORE, TAKEOVER)
    assert lead == Kill(target, 0, 2.5, 8.0, 150.0, 290.0, 1290.0, Mode.RESTART)
    assert is_survived(lead)
    lost = (
        _event(JobEventKind.TASK_MANAGER_LOST, 3000.0, token=7, attempt=3),
        _event(JobEventKind.CHECKPOINT_COMPLETED, 200.0, token=7, attempt=3, checkpoint=10),  # before that was noticed
        _event(JobEventKind.ATTEMPT_DEPLOYED, 3200.0, token=7),
        _event(JobEventKind.FIRST_RECORD, 3300.0, token=7),
    )
    attempt = assemble(target, 0, BEFORE, lost)
    assert attempt == Kill(target, 0, 3000.0, None, 3200.0, 3300.0, None, Mode.RESTART)
    assert not is_survived(attempt)
    committed = _event(JobEventKind.CHECKPOINT_COMPLETED, 4000.0, token=7, checkpoint=12)
    assert is_survived(assemble(target, 0, BEFORE, (*lost, committed)))


def test_what_was_committed_before_a_link_was_whole_again_does_not_show_that_the_job_goes_on() -> None:
    early = _event(JobEventKind.CHECKPOINT_COMPLETED, 300.0, checkpoint=11)
    late = _event(JobEventKind.CHECKPOINT_COMPLETED, 6100.0, checkpoint=12)
    assert not has_committed((early,), KILL_US + 6_000_000)
    assert has_committed((early, late), KILL_US + 6_000_000)


@pytest.mark.parametrize("off_us", [0, 3_600_000_000, -3_600_000_000])
@pytest.mark.parametrize("late_us", [-1_000, 5_000, 600_000_000])
def test_the_time_of_an_event_is_right_although_a_clock_was_off(off_us: int, late_us: int) -> None:
    """However late it arrives, as a new leader repeats what happened before."""
    event = _event(JobEventKind.LEADER_GRANTED, 8.0)
    sent = dataclasses.replace(event, unix_us=event.unix_us + off_us)
    assert righted(sent, event.unix_us + late_us) == event
