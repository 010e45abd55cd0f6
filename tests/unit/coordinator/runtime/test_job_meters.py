"""Since when a job has been running, as its metrics say."""

from __future__ import annotations

from lockgate_coordinator.job.effects import Emit
from lockgate_coordinator.runtime.meters import JobMeters
from lockgate_proto.messages import JobEvent, JobEventKind, JobState


def since(*steps: JobState | JobEventKind) -> list[float]:
    """After each step, one a second."""
    meters, found = JobMeters(), []
    for second, step in enumerate(steps, start=1):
        event = (
            JobEvent(kind=step)
            if isinstance(step, JobEventKind)
            else JobEvent(kind=JobEventKind.STATE_CHANGED, text=step.name)
        )
        meters.count(Emit(event), second * 1_000_000)
        found.append(meters.running_since_s)
    return found


RUNNING, RESTARTING, WAITING = JobState.RUNNING, JobState.RESTARTING, JobState.WAITING_FOR_SLOTS
COMPLETED, ABORTED = JobEventKind.CHECKPOINT_COMPLETED, JobEventKind.CHECKPOINT_ABORTED


def test_a_job_whose_attempts_all_end_before_a_checkpoint_runs_since_the_first_one() -> None:
    assert since(RUNNING, RESTARTING, RUNNING, ABORTED, RESTARTING, RUNNING) == [1.0] * 6


def test_an_attempt_after_a_completed_checkpoint_begins_anew() -> None:
    assert since(RUNNING, COMPLETED, RESTARTING, RUNNING, RESTARTING, RUNNING) == [1, 1, 1, 4, 4, 4]


def test_a_job_that_has_waited_for_slots_begins_anew() -> None:
    assert since(WAITING, RUNNING, RESTARTING, WAITING, RUNNING) == [0, 2, 2, 2, 5]
