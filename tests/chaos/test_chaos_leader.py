"""The leader dies: at random moments, and at each of its named points."""

from __future__ import annotations

import contextlib
import random

import pytest

from coordinator.runtime import faults
from lockgate.drill.arena import DrillError
from lockgate.drill.model import Target
from lockgate.drill.processes import ProcessArena
from tests.chaos.ground import PATIENCE_S, Ground

pytestmark = pytest.mark.chaos

PASSAGES = {"after-attempt-persist": 1, "before-result": 1}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_leader_killed_at_random_moments_changes_no_result(ground: Ground, seed: int) -> None:
    choice = random.Random(seed)
    with ground.history() as history, ground.ledger(seconds=7) as job:
        job.wait_checkpoints(1)
        for _ in range(2):
            job.pause(choice.uniform(0, 1.0))
            number = ground.kill_leader()
            job.wait_checkpoints(1)
            ground.cluster.wait_ready("coordinator", number, PATIENCE_S)
        status = job.check_exact()
    assert status.attempt >= 3
    history.check()


def test_a_drill_knows_the_processes_of_a_cluster_that_it_has_not_started(ground: Ground) -> None:
    arena = ProcessArena(ground.client, None, ground.directory)

    def is_surveyed() -> bool:
        with contextlib.suppress(DrillError):  # who died in another test is listed until its session has expired
            arena.survey(Target.LEADER)
            return True
        return False

    ground.wait_until(is_surveyed, "every process is found at its address")
    with ground.ledger(seconds=4) as job:
        job.wait_checkpoints(1)
        arena.kill(arena.victim(Target.LEADER, job.status, random.Random(1)))
        assert job.check_exact().attempt == 2


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_leader_that_dies_at_this_point_changes_no_result(ground: Ground, point: str) -> None:
    armed = ground.arm_standby(f"{point}:{PASSAGES.get(point, 3)}")
    before = ground.cluster.pids()[f"coordinator-{armed}"]
    with ground.history() as history, ground.ledger(seconds=4) as job:
        job.wait_checkpoints(1)
        ground.kill_leader()  # now the armed one leads, and dies at its point
        ground.cluster.wait_ready("coordinator", armed, PATIENCE_S, other_than=before)
        job.check_exact()
    assert len(history.epochs) >= 3
    history.check()
