"""Frozen leaders, several deaths at once, ZooKeeper, and files that are not what they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lockgate_proto.messages import JobState

from tests.chaos.ground import CONTINUE, STOP, Ground
from tests.drained import PATIENCE_S

pytestmark = pytest.mark.chaos

INTERVAL_MS = 10_000
"""Far longer than it takes to damage a snapshot and to kill the leader: the next one would replace it."""


def test_a_leader_frozen_past_its_session_does_no_harm_when_it_goes_on(ground: Ground) -> None:
    with ground.history() as history, ground.ledger() as job:
        job.wait_checkpoints(2)
        frozen = ground.leader_number()
        pid = ground.cluster.kill("coordinator", frozen, STOP)
        try:
            ground.wait_until(lambda: ground.cluster.leader_number(0.5) == 1 - frozen, "the standby leads")
            job.wait_attempt(2)
            ground.wait_until(lambda: not ground.is_in_line(pid), "the frozen leader's session is over")
        finally:
            ground.cluster.kill("coordinator", frozen, CONTINUE)
        ground.wait_until(lambda: ground.is_in_line(pid), "the zombie should live on as a standby")
        job.wait_checkpoints(2)  # while the zombie is back
        status = job.check_exact()
        assert ground.cluster.pids()[f"coordinator-{frozen}"] == pid
    assert status.token == history.epochs[-1] == history.epochs[0] + 1
    history.check()


def test_leader_and_task_manager_killed_at_once_change_no_result(ground: Ground) -> None:
    with ground.history() as history, ground.ledger() as job:
        job.wait_checkpoints(2)
        ground.cluster.kill("taskmanager", 1)
        ground.kill_leader()
        job.wait_attempt(2)
        job.check_exact()
    history.check()


def test_a_zookeeper_that_dies_and_comes_back_restarts_nothing(ground: Ground) -> None:
    with ground.ledger() as job:
        job.wait_checkpoints(2)
        before = job.status
        pid = ground.cluster.kill("zookeeper", 0)
        ground.cluster.wait_ready("zookeeper", 0, PATIENCE_S, other_than=pid)
        job.wait_checkpoints(2)
        status = job.check_exact()
    assert (status.attempt, status.restarts, status.token) == (before.attempt, before.restarts, before.token)


def _corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [_corrupt, Path.unlink], ids=["corrupt", "missing"])
def test_a_damaged_state_file_fails_its_own_job_with_a_clear_error(
    ground: Ground, damage: Callable[[Path], None]
) -> None:
    with ground.ledger(interval_ms=INTERVAL_MS) as damaged, ground.ledger() as other:
        damaged.wait_checkpoints(1)
        checkpoint = damaged.last_checkpoint()
        files = ground.checkpoint_files(checkpoint.pointer)
        assert files, "the job keeps no state in files"
        for path in files:
            damage(path)
        ground.kill_leader()
        error = damaged.wait_end(JobState.FAILED).error
        assert any(path.name in error for path in files), error
        assert str(checkpoint.checkpoint_id) in error
        kept = {one.checkpoint_id for one in ground.client.checkpoints(damaged.key)}
        assert not kept or checkpoint.checkpoint_id in kept
        assert Path(checkpoint.pointer.removeprefix("file://")).exists(), "nothing may be deleted: an operator chooses"
        other.check_exact()
