"""The storage of snapshots goes away and comes back: no task restarts, and the result is exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lockgate_proto.messages import JobState

from tests.chaos.testing_cluster import TestingCluster

pytestmark = pytest.mark.chaos


@contextmanager
def storage_away(testing: TestingCluster) -> Iterator[None]:
    """No file can be read or written in the storage."""
    storage = Path(testing.cluster.storage)
    away = storage.with_name("storage-away")
    storage.rename(away)
    storage.write_text("a file where the folder was")
    try:
        yield
    finally:
        storage.unlink()
        away.rename(storage)


def test_a_job_runs_on_while_its_storage_is_away(testing: TestingCluster) -> None:
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        before = job.status
        with storage_away(testing):
            testing.wait_until(lambda: _is_in_trouble(testing, job.key), "the status says that nothing is durable")
            made = _records(testing, job.key)
            testing.wait_until(lambda: _records(testing, job.key) > made, "records flow without a storage")
            status = testing.client.job(job.key)
            assert status.state is JobState.RUNNING
            assert "no checkpoint has completed since" in status.message
            aborted = status.checkpoints_aborted
            testing.wait_until(
                lambda: testing.client.job(job.key).checkpoints_aborted > aborted + 2, "more snapshots fail"
            )
        job.wait_checkpoints(1)
        testing.wait_until(lambda: not _is_in_trouble(testing, job.key), "the trouble is over")
        status = job.check_exact()
        assert (status.attempt, status.restarts) == (before.attempt, before.restarts)
    history.check()


def test_a_restart_waits_for_a_storage_that_is_away(testing: TestingCluster) -> None:
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        before = job.status
        with storage_away(testing):
            testing.cluster.kill("taskmanager", 0)
            testing.wait_until(lambda: "has waited for its storage since" in _message(testing, job.key), "it says so")
            attempt = testing.client.job(job.key).attempt
            testing.wait_until(lambda: testing.client.job(job.key).attempt > attempt + 1, "it is tried again and again")
            assert _is_in_trouble(testing, job.key)
        job.wait_checkpoints(1)
        assert not _is_in_trouble(testing, job.key)
        assert job.check_exact().restarts == before.restarts + 1, "for the task manager alone"
    history.check()


def _message(testing: TestingCluster, key: str) -> str:
    return testing.client.job(key).message


def _is_in_trouble(testing: TestingCluster, key: str) -> bool:
    return testing.client.job(key).storage_trouble is not None


def _records(testing: TestingCluster, key: str) -> int:
    return sum(operator.records_in for operator in testing.client.job(key).operators)
