"""A task manager dies: at random moments, and at each of its named points."""

from __future__ import annotations

import random

import pytest

from taskmanager.runtime import faults
from tests.chaos.ground import Ground

pytestmark = pytest.mark.chaos

PASSAGES = {"on-deploy": 1, "before-commit": 2, "after-commit": 2}


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_task_manager_that_dies_at_this_point_changes_no_result(ground: Ground, point: str) -> None:
    ground.arm("taskmanager", 0, f"{point}:{PASSAGES.get(point, 5)}")
    ground.wait_whole()
    before = ground.cluster.pids()["taskmanager-0"]
    with ground.ledger(seconds=4) as job:
        status = job.check_exact()
    assert status.attempt >= 2
    assert ground.cluster.pids().get("taskmanager-0") != before


@pytest.mark.parametrize("seed", [1, 2])
def test_a_task_manager_killed_at_a_random_moment_changes_no_result(ground: Ground, seed: int) -> None:
    choice = random.Random(seed)
    with ground.ledger(seconds=4) as job:
        job.wait_checkpoints(1)
        job.pause(choice.uniform(0, 1.0))
        ground.cluster.kill("taskmanager", choice.randrange(2))
        assert job.check_exact().attempt >= 2
