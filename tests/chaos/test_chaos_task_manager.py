"""A task manager dies: at random moments, and at each of its named points."""

from __future__ import annotations

import random
import signal

import pytest

from taskmanager.runtime import faults
from tests.chaos.ground import Ground
from tests.ledger_job import NEVER

pytestmark = pytest.mark.chaos

PASSAGES = {"on-deploy": 1, "before-commit": 2, "after-commit": 2}


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_task_manager_that_dies_at_this_point_changes_no_result(ground: Ground, point: str) -> None:
    ground.arm("taskmanager", 0, f"{point}:{PASSAGES.get(point, 5)}")
    ground.wait_whole()
    before = ground.cluster.pids()["taskmanager-0"]
    with ground.ledger() as job:
        job.wait_attempt(2)
        assert before not in ground.pids("taskmanager")
        job.check_exact()


def test_a_job_that_is_never_restarted_survives_that_every_task_manager_is_stopped(ground: Ground) -> None:
    with ground.ledger(restart=NEVER) as job:
        for number in (0, 1):  # then nobody is left, and it waits for the first one that comes back
            job.wait_attempt(number + 1)
            ground.cluster.kill("taskmanager", number, signal.SIGTERM)
        job.wait_attempt(3)
        assert job.check_exact().restarts == 2


@pytest.mark.parametrize("seed", [1, 2])
def test_a_task_manager_killed_at_a_random_moment_changes_no_result(ground: Ground, seed: int) -> None:
    choice = random.Random(seed)
    with ground.ledger() as job:
        job.wait_checkpoints(1)
        job.pause(choice.uniform(0, 1.0))
        ground.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_attempt(2)
        job.check_exact()
