"""A new leader adopts what runs: nothing of the dead one is left over, given out again, or done under its token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.job import SimulatedJob, count, forward_job, hashed, ledger, source
from tests.simulation.scenarios import quiet_scenario
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.taskmanager import TaskPlan

INTERVAL_MS = 3_000


def outcome(at_ms: float, fault: str, plan: TaskPlan | None = None) -> Outcome:
    """Of a job for some seconds whose splits are listed by a task manager; its first checkpoint begins at 3,160 ms."""
    vertices = (source("source", 8, 60, discovered=True), count("count"), ledger())
    job = SimulatedJob("job", vertices, (hashed("source", "count"), hashed("source", "ledger")), INTERVAL_MS)
    faults = ((at_ms, fault),)
    return simulate(replace(quiet_scenario(3), job=job, reattach=True, faults=faults, plan=plan or TaskPlan()))


@pytest.mark.parametrize("at_ms", range(400, 1_000, 60))
def test_splits_that_a_dead_leader_has_given_out_are_not_given_out_again(at_ms: int) -> None:
    """It dies before the first checkpoint, so that no snapshot says which they are. See TakeoverOracle."""
    found = outcome(at_ms, "kill_leader")
    assert (found.attempts, found.grants) == (1, 2)


@pytest.mark.parametrize("at_ms", range(3_120, 3_180, 6))
def test_a_checkpoint_that_a_dead_leader_has_begun_is_ended_before_the_next_begins(at_ms: int) -> None:
    """It dies between two triggers: one task manager has got none. See TakeoverOracle."""
    found = outcome(at_ms, "interrupt_leader")
    assert (found.attempts, found.grants) == (1, 2)


@pytest.mark.parametrize(("grace_ms", "attempts"), [(1_000, 2), (600_000, 1)])
def test_subtasks_that_have_no_leader_run_on_until_their_grace_ends(grace_ms: int, attempts: int) -> None:
    """All coordinators are dead for three seconds. What has ended by itself starts again from its snapshot."""
    found = outcome(3_600, "kill_coordinators", TaskPlan(leader_grace_ms=grace_ms))
    assert (found.attempts, found.grants) == (attempts, 2)


def test_an_attempt_is_adopted_when_its_task_managers_come_one_after_the_other() -> None:
    """The last much later than a new leader waits for the first. Free slots for another attempt are there before."""
    plan, faults = TaskPlan(late_ms=1_500), ((900.0, "kill_leader"),)
    found = simulate(
        replace(
            quiet_scenario(3),
            job=forward_job("job", INTERVAL_MS),
            task_managers=4,
            reattach=True,
            faults=faults,
            plan=plan,
        )
    )
    assert (found.attempts, found.grants) == (1, 2)
