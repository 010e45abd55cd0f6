"""Events to times since the kill."""

from __future__ import annotations

import random

from lockgate_devtools.drill.model import Kill, Mode, Target
from lockgate_devtools.drill.timeline import Before, assemble, checkpoint_counts, is_survived
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
