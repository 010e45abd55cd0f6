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


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
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


@pytest.mark.parametrize(("first", "second"), [*zip(faults.POINTS[:4], faults.POINTS[4:], strict=True)])
def test_leaders_that_die_at_these_points_change_no_result(testing: TestingCluster, first: str, second: str) -> None:
    """One while the job runs, at its checkpoints; the standby is armed as well, leads next, and dies next."""
    armed = testing.arm_standby(f"{second}:{PASSAGES.get(second, 3)}")
    before = testing.cluster.pids()[f"coordinator-{armed}"]
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        leader = testing.arm("coordinator", 1 - armed, f"{first}:3")
        testing.cluster.wait_ready("coordinator", 1 - armed, PATIENCE_S, other_than=leader)  # it has died at its point
        if second in AT_THE_END:
            job.drain()
        testing.cluster.wait_ready("coordinator", armed, PATIENCE_S, other_than=before)
        job.check_exact()
    assert history.epochs[-1] >= history.epochs[0] + 2
    history.check()


@pytest.mark.parametrize(
    "point", [None, "after-attempt-persist:1", pytest.param("before-notify:1", marks=pytest.mark.soak)]
)
def test_two_leaders_that_die_one_after_the_other_restart_nothing(testing: TestingCluster, point: str | None) -> None:
    """The second as soon as it leads, or as it adopts the job: before it has sent anything, or before the first word.

    The third has to start first; meanwhile the subtasks run without a leader.
    """
    standby = 1 - testing.leader_number()
    with testing.history() as history, testing.ledger(failover=LeaderFailover.LEADER_FAILOVER_REATTACH) as job:
        job.wait_checkpoints(1)
        before = testing.cluster.pids()[f"coordinator-{standby}"]
        terms = len(history.epochs)
        if point is not None:
            testing.arm("coordinator", standby, point)
        testing.kill_leader()
        if point is None:
            testing.wait_until(lambda: len(history.epochs) > terms, "the standby leads")
            testing.cluster.kill("coordinator", standby)
        testing.cluster.wait_ready("coordinator", standby, PATIENCE_S, other_than=before)
        job.wait_checkpoints(2)
        kinds = Counter(event.kind for event in job.observer.events)
        assert kinds[JobEventKind.ATTEMPT_ADOPTED] >= 1
        status = job.check_exact()
        assert (status.attempt, status.restarts) == (1, 0)
    assert len(history.epochs) >= terms + 2
    history.check()
