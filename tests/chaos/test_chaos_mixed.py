"""Frozen leaders, several deaths at once, ZooKeeper, and files that are not what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from lockgate_proto.messages import CompletedCheckpoint, JobEventKind, JobState, LeaderFailover

from tests.chaos.testing_cluster import CONTINUE, STOP, TestingCluster
from tests.drained import PATIENCE_S, path_of

pytestmark = pytest.mark.chaos

INTERVAL_MS = 10_000
"""Far longer than it takes to damage a snapshot and to kill the leader: the next one would replace it."""


def test_a_leader_frozen_past_its_session_is_harmless_when_it_wakes_up(testing: TestingCluster) -> None:
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(2)
        frozen = testing.leader_number()
        pid = testing.cluster.kill("coordinator", frozen, STOP)
        try:
            testing.wait_until(lambda: testing.cluster.leader_number(0.5) == 1 - frozen, "the standby leads")
            job.wait_attempt(2)
            testing.wait_until(lambda: not testing.is_in_line(pid), "the frozen leader's session is over")
        finally:
            testing.cluster.kill("coordinator", frozen, CONTINUE)
        testing.wait_until(lambda: testing.is_in_line(pid), "the zombie should live on as a standby")
        job.wait_checkpoints(2)  # while the zombie is back
        status = job.check_exact()
        assert testing.cluster.pids()[f"coordinator-{frozen}"] == pid
    assert status.token == history.epochs[-1] == history.epochs[0] + 1
    history.check()


def test_a_frozen_leader_steps_down_when_it_goes_on_and_its_job_is_adopted_or_says_why_not(
    testing: TestingCluster,
) -> None:
    """It goes on as soon as the standby leads. Where the machine is busy, the job may not be adopted, and says so."""
    with testing.history() as history, testing.ledger(failover=LeaderFailover.LEADER_FAILOVER_REATTACH) as job:
        job.wait_checkpoints(2)
        frozen = testing.leader_number()
        pid = testing.cluster.kill("coordinator", frozen, STOP)
        try:
            testing.wait_until(lambda: testing.cluster.leader_number(0.5) == 1 - frozen, "the standby leads")
        finally:
            testing.cluster.kill("coordinator", frozen, CONTINUE)
        testing.wait_until(lambda: testing.is_in_line(pid), "the replaced leader should live on as a standby")
        job.wait_checkpoints(2)
        kinds = Counter(event.kind for event in job.observer.events)
        assert kinds[JobEventKind.ATTEMPT_ADOPTED] + kinds[JobEventKind.ATTEMPT_NOT_ADOPTED] == 1
        status = job.check_exact()
        assert testing.cluster.pids()[f"coordinator-{frozen}"] == pid
    assert status.token == history.epochs[-1] == history.epochs[0] + 1
    history.check()


def test_leader_and_task_manager_killed_at_once_change_no_result(testing: TestingCluster) -> None:
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(2)
        testing.cluster.kill("taskmanager", 1)
        testing.kill_leader()
        job.wait_attempt(2)
        job.check_exact()
    history.check()


def test_a_zookeeper_that_dies_and_returns_restarts_nothing(testing: TestingCluster) -> None:
    with testing.ledger() as job:
        job.wait_checkpoints(2)
        before = job.status
        pid = testing.cluster.kill("zookeeper", 0)
        testing.cluster.wait_ready("zookeeper", 0, PATIENCE_S, other_than=pid)
        job.wait_checkpoints(2)
        status = job.check_exact()
    assert (status.attempt, status.restarts, status.token) == (before.attempt, before.restarts, before.token)


def _corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.rotating
@pytest.mark.parametrize("damage", [_corrupt, Path.unlink], ids=["corrupt", "missing"])
def test_a_damaged_state_file_fails_its_own_job_with_a_clear_error(
    testing: TestingCluster, damage: Callable[[Path], None]
) -> None:
    with testing.ledger(interval_ms=INTERVAL_MS) as damaged, testing.ledger() as other:
        damaged.wait_checkpoints(1)
        checkpoint = damaged.last_checkpoint()
        files = testing.checkpoint_files(checkpoint.pointer)
        assert files, "the job keeps no state in files"
        for path in files:
            damage(path)
        testing.kill_leader()
        error = damaged.wait_end(JobState.FAILED).error
        assert any(path.name in error for path in files), error
        assert str(checkpoint.checkpoint_id) in error
        check_kept(checkpoint, testing.client.checkpoints(damaged.key))
        other.check_exact()


def check_kept(damaged: CompletedCheckpoint, kept: Sequence[CompletedCheckpoint]) -> None:
    """Nothing may be deleted: an operator chooses. kept: what the cluster still knows of the job."""
    assert damaged.pointer in {checkpoint.pointer for checkpoint in kept}
    assert path_of(damaged).is_file()
