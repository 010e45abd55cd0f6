"""The leader dies: at random moments, and at each of its named points."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from lockgate_coordinator.runtime import faults
from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.processes import ProcessArena
from lockgate_proto.messages import JobEventKind, LeaderFailover

from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S

pytestmark = pytest.mark.chaos

AT_THE_END = ("before-result",)
PASSAGES = {"after-attempt-persist": 1, "before-result": 1}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_leader_killed_at_random_moments_changes_no_result(testing: TestingCluster, seed: int) -> None:
    choice = random.Random(seed)
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        for attempt in (2, 3):
            job.pause(choice.uniform(0, 1.0))
            number = testing.kill_leader()
            job.wait_attempt(attempt)
            testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        job.check_exact()
    history.check()


def test_a_leader_that_dies_restarts_nothing_of_a_job_that_is_adopted(testing: TestingCluster) -> None:
    """A machine that is too busy for its task managers to register in time makes another attempt, and says so."""
    choice = random.Random(7)
    with testing.history() as history, testing.ledger(failover=LeaderFailover.LEADER_FAILOVER_REATTACH) as job:
        job.wait_checkpoints(1)
        for _ in range(3):
            job.pause(choice.uniform(0, 1.0))
            number = testing.kill_leader()
            job.wait_checkpoints(2)  # the first one may be of the dead leader
            testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        kinds = Counter(event.kind for event in job.observer.events)
        assert kinds[JobEventKind.ATTEMPT_ADOPTED] + kinds[JobEventKind.ATTEMPT_NOT_ADOPTED] == 3
        assert kinds[JobEventKind.ATTEMPT_ADOPTED] >= 1
        assert job.status.attempt == 1 + kinds[JobEventKind.ATTEMPT_NOT_ADOPTED] == 1 + job.status.restarts
        job.check_exact()
    history.check()


def test_a_drill_knows_the_processes_of_a_cluster_that_it_has_not_started(testing: TestingCluster) -> None:
    arena = ProcessArena(testing.client, None, testing.directory)
    arena.survey(Target.LEADER)
    with testing.ledger() as job:
        job.wait_checkpoints(1)
        victim = arena.victim(Target.LEADER, job.status, random.Random(1))
        assert testing.cluster.pids()[f"coordinator-{testing.leader_number()}"] == victim.pid
        arena.kill(victim)
        job.wait_attempt(2)
        assert victim.pid not in testing.pids("coordinator")
        job.check_exact()


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_leader_that_dies_at_this_point_changes_no_result(testing: TestingCluster, point: str) -> None:
    armed = testing.arm_standby(f"{point}:{PASSAGES.get(point, 3)}")
    before = testing.cluster.pids()[f"coordinator-{armed}"]
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        testing.kill_leader()  # now the armed one leads, and dies at its point
        if point in AT_THE_END:
            job.drain()
        testing.cluster.wait_ready("coordinator", armed, PATIENCE_S, other_than=before)
        job.check_exact()
    assert history.epochs[-1] >= history.epochs[0] + 2
    history.check()
