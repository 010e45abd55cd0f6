"""A job of 10,000 subtasks on 251 task managers: what a leader does for it grows with it, and not faster."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.simulation.crowd_run import SPARE, VERTICES, Work, crowd_scenario, work_of

FEW, SOME, MANY = 400, 2_000, 10_000
MOST = 1.2
"""How many times as much a subtask of the larger job may cost."""


def alone(subtasks: int) -> Work:
    """The work in a process of its own: what other tests have left in this one would take part."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work_of, subtasks).result()


def check(work: Work, subtasks: int) -> None:
    """Nothing is restarted with the leader, and with a task manager only what ran there; the cancel is certain."""
    found = work.outcome
    assert (found.attempts, found.grants, found.ended) == (2, 2, ("CANCELED",))
    assert len(found.begun) == subtasks
    assert 0 < sum(times == 2 for times in found.begun.values()) <= 10 * len(VERTICES)
    assert max(found.begun.values()) == 2
    assert work.checkpoints >= 5


def test_there_is_a_slot_for_each_subtask_and_some_more() -> None:
    scenario = crowd_scenario(MANY)
    assert scenario.job is not None
    assert sum(scenario.job.widths.values()) == MANY
    assert scenario.task_managers == 250 + SPARE


def test_a_subtask_of_a_larger_job_costs_the_leader_the_same() -> None:
    small, large = alone(FEW), alone(SOME)
    check(small, FEW)
    check(large, SOME)
    assert large.calls <= MOST * small.calls * SOME / FEW, (small.calls, large.calls)


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.timeout(900)
def test_a_subtask_of_a_job_of_10_000_costs_the_leader_the_same() -> None:
    small, large = alone(MANY // 10), alone(MANY)
    check(large, MANY)
    assert large.calls <= 10 * MOST * small.calls, (small.calls, large.calls)
