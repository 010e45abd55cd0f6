"""A job that is cancelled before its new leader has taken over the attempt that runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.job import effects, events
from lockgate_proto.messages import (
    AttemptProgress,
    CancelAttempt,
    CheckpointCommitted,
    JobState,
    NotifyCheckpointComplete,
    SubtaskPhase,
)

from tests.unit.coordinator.driver import SLOTS
from tests.unit.coordinator.job.test_adoption import NUMBER, Successor, progress
from tests.unit.coordinator.jobs import JOB, subtask


def cancelled(leader: Successor, at: str, item: tuple[AttemptProgress, AttemptProgress]) -> None:
    """A client cancels the job before its task managers register, before slots are granted, or while it is adopted."""
    for now, step in (
        ("registered", lambda: leader.hear(enumerate(item))),
        ("granted", lambda: leader.offer(leader.request)),
        ("written", lambda: leader.give(events.AttemptPersisted(NUMBER))),
    ):
        if at == now:
            leader.give(events.CancelRequested())
            assert not leader.of(effects.Send), "it may be adopted yet"
        step()


@pytest.mark.parametrize("at", ["registered", "granted", "written"])
@pytest.mark.parametrize("committed", [0, 1])
def test_a_job_that_is_cancelled_at_a_new_leader_commits_its_newest_checkpoint_before_it_ends(
    at: str, committed: int
) -> None:
    leader = Successor()
    late = progress(1)
    source, count = late.subtasks
    late = replace(late, subtasks=(source, replace(count, committed_id=committed)))
    cancelled(leader, at, (progress(0), late))
    assert {name for name, _ in leader.sent(NotifyCheckpointComplete)} == {"tm-a", "tm-b"}
    if not committed:
        assert not leader.sent(CancelAttempt)
        leader.give(events.Committed(CheckpointCommitted(subtask("count", 1, NUMBER), 1)))
    assert {name for name, _ in leader.sent(CancelAttempt)} == {"tm-a", "tm-b"}
    assert leader.state is JobState.CANCELING
    leader.gone("tm-a", NUMBER)
    leader.gone("tm-b", NUMBER)
    result = leader.result()
    assert (result.outcome, result.error, result.attempt) == ("CANCELED", "", NUMBER)


@pytest.mark.parametrize("committed", [0, 1])
def test_a_cancelled_job_that_cannot_be_adopted_begins_nothing_and_says_what_its_sinks_have_committed(
    committed: int,
) -> None:
    leader = Successor()
    ended = progress(1, SubtaskPhase.SUBTASK_FAILED)
    source, count = ended.subtasks
    leader.hear([(0, progress(0)), (1, replace(ended, subtasks=(source, replace(count, committed_id=committed))))])
    leader.give(events.CancelRequested())
    leader.give(events.SlotsOffered(JOB, leader.request, SLOTS))
    assert {name for name, _ in leader.sent(CancelAttempt)} == {"tm-a", "tm-b"}
    result = leader.result()
    assert (result.outcome, result.attempt) == ("CANCELED", NUMBER)
    assert bool(result.error) is not bool(committed)


def test_a_cancelled_job_does_not_wait_long_for_task_managers_that_do_not_come_back() -> None:
    leader = Successor()
    leader.hear([(0, progress(0))])
    leader.give(events.CancelRequested())
    assert leader.one(effects.WakeAt).at_ms == 6_000
    leader.tick(4_999)
    assert leader.state is JobState.WAITING_FOR_SLOTS
    leader.tick(1)
    assert leader.result().outcome == "CANCELED"
    assert "may be only partially committed" in leader.result().error


def test_a_cancelled_job_ends_at_once_when_its_attempt_cannot_go_on() -> None:
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    leader.begin()
    leader.give(events.CancelRequested())
    leader.give(events.TaskManagerLost("tm-b", "its process has ended"))
    assert leader.result().outcome == "CANCELED"
    assert leader.result().error == "", "everything was committed"
