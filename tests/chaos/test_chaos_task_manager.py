"""A task manager dies: at random moments, and at each of its named points."""

from __future__ import annotations

import random
import signal

import pytest
from lockgate_taskmanager.runtime import faults

from tests.chaos.testing_cluster import TestingCluster
from tests.ledger_job import NEVER

pytestmark = pytest.mark.chaos

PASSAGES = {"on-deploy": 1, "before-commit": 2, "after-commit": 2}


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_task_manager_that_dies_at_this_point_changes_no_result(testing: TestingCluster, point: str) -> None:
    before = testing.arm("taskmanager", 0, f"{point}:{PASSAGES.get(point, 5)}")
    with testing.ledger() as job:
        job.wait_attempt(2)
        assert before not in testing.pids("taskmanager")
        job.check_exact()


def test_a_job_that_is_never_restarted_survives_that_every_task_manager_is_stopped(testing: TestingCluster) -> None:
    with testing.ledger(restart=NEVER) as job:
        for number in (0, 1):  # then none is left, and it waits for the first one that returns
            job.wait_attempt(number + 1)
            testing.cluster.kill("taskmanager", number, signal.SIGTERM)
        job.wait_attempt(3)
        assert job.check_exact().restarts == 2


@pytest.mark.parametrize("seed", [1, 2])
def test_a_task_manager_killed_at_a_random_moment_changes_no_result(testing: TestingCluster, seed: int) -> None:
    choice = random.Random(seed)
    with testing.ledger() as job:
        job.wait_checkpoints(1)
        job.pause(choice.uniform(0, 1.0))
        testing.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_attempt(2)
        job.check_exact()
