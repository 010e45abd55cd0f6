"""The leader dies: at random moments, and at each of its named points."""

from __future__ import annotations

import random

import pytest

from coordinator.runtime import faults
from lockgate.drill.model import Target
from lockgate.drill.processes import ProcessArena
from tests.chaos.ground import Ground
from tests.drained import PATIENCE_S

pytestmark = pytest.mark.chaos

AT_THE_END = ("before-result",)
PASSAGES = {"after-attempt-persist": 1, "before-result": 1}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_leader_killed_at_random_moments_changes_no_result(ground: Ground, seed: int) -> None:
    choice = random.Random(seed)
    with ground.history() as history, ground.ledger() as job:
        job.wait_checkpoints(1)
        for attempt in (2, 3):
            job.pause(choice.uniform(0, 1.0))
            number = ground.kill_leader()
            job.wait_attempt(attempt)
            ground.cluster.wait_ready("coordinator", number, PATIENCE_S)
        job.check_exact()
    history.check()


def test_a_drill_knows_the_processes_of_a_cluster_that_it_has_not_started(ground: Ground) -> None:
    arena = ProcessArena(ground.client, None, ground.directory)
    arena.survey(Target.LEADER)
    with ground.ledger() as job:
        job.wait_checkpoints(1)
        victim = arena.victim(Target.LEADER, job.status, random.Random(1))
        assert ground.cluster.pids()[f"coordinator-{ground.leader_number()}"] == victim.pid
        arena.kill(victim)
        job.wait_attempt(2)
        assert victim.pid not in ground.pids("coordinator")
        job.check_exact()


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_leader_that_dies_at_this_point_changes_no_result(ground: Ground, point: str) -> None:
    armed = ground.arm_standby(f"{point}:{PASSAGES.get(point, 3)}")
    before = ground.cluster.pids()[f"coordinator-{armed}"]
    with ground.history() as history, ground.ledger() as job:
        job.wait_checkpoints(1)
        ground.kill_leader()  # now the armed one leads, and dies at its point
        if point in AT_THE_END:
            job.drain()
        ground.cluster.wait_ready("coordinator", armed, PATIENCE_S, other_than=before)
        job.check_exact()
    assert history.epochs[-1] >= history.epochs[0] + 2
    history.check()
