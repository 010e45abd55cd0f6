"""The storage of snapshots goes away and comes back: no task restarts, and the result is exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_proto.messages import JobState

from tests.chaos.ground import Ground

pytestmark = pytest.mark.chaos


def test_a_job_runs_on_while_its_storage_is_away(ground: Ground) -> None:
    storage = Path(ground.cluster.storage)
    away = storage.with_name("storage-away")
    with ground.history() as history, ground.ledger() as job:
        job.wait_checkpoints(1)
        before = job.status
        storage.rename(away)
        storage.write_text("a file where the folder was")
        try:
            ground.wait_until(lambda: _is_in_trouble(ground, job.key), "the status says that nothing is durable")
            made = _records(ground, job.key)
            ground.wait_until(lambda: _records(ground, job.key) > made, "records flow without a storage")
            status = ground.client.job(job.key)
            assert status.state is JobState.RUNNING
            assert "nothing was made durable since" in status.message
            aborted = status.checkpoints_aborted
            ground.wait_until(
                lambda: ground.client.job(job.key).checkpoints_aborted > aborted + 2, "more snapshots fail"
            )
        finally:
            storage.unlink()
            away.rename(storage)
        job.wait_checkpoints(1)
        ground.wait_until(lambda: not _is_in_trouble(ground, job.key), "the trouble is over")
        status = job.check_exact()
        assert (status.attempt, status.restarts) == (before.attempt, before.restarts)
    history.check()


def _is_in_trouble(ground: Ground, key: str) -> bool:
    return ground.client.job(key).storage_trouble is not None


def _records(ground: Ground, key: str) -> int:
    return sum(operator.records_in for operator in ground.client.job(key).operators)
