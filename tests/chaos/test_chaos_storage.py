"""The storage of snapshots goes away and comes back: no task restarts, and the result is exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lockgate_common.fault_points import slow_fault
from lockgate_coordinator.job.local_copies import files_of
from lockgate_proto.codec import decode
from lockgate_proto.messages import CheckpointMetadata, CheckpointOptions, JobEventKind, JobState, LeaderFailover
from lockgate_taskmanager.state.local_copies import COPIES_PREFIX

from tests.chaos.keyed_job import KeyedJob
from tests.chaos.test_chaos_increments import BACKENDS
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S, path_of

pytestmark = pytest.mark.chaos

COMPLETED = JobEventKind.CHECKPOINT_COMPLETED
WRITE_S = 3.0


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


@contextmanager
def slow_storage(testing: TestingCluster, seconds: float) -> Iterator[None]:
    """Each write of a file in the storage takes so much longer, in every process that runs now."""
    fault = slow_fault(Path(testing.cluster.storage), seconds)
    for role in ("coordinator", "taskmanager"):
        for number in range(2):
            testing.arm(role, number, fault)
    try:
        yield
    finally:
        testing.disarm()


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


@pytest.mark.rotating
def test_a_job_runs_on_and_is_adopted_while_every_write_of_its_storage_takes_long(testing: TestingCluster) -> None:
    """Ten times as long as the interval of checkpoints."""
    reattach = LeaderFailover.LEADER_FAILOVER_REATTACH
    with (
        testing.history() as history,
        KeyedJob(testing, "slow", BACKENDS["filesystem"], leader_failover=reattach) as job,
    ):
        job.wait_checkpoints(1)
        with slow_storage(testing, WRITE_S):
            job.wait_checkpoints(job.seen(COMPLETED) + 2)
            took_ms = testing.client.checkpoints(job.key)[0].duration_ms
            assert took_ms > WRITE_S * 1_000, "all of its writes were slow"
            made = _records(testing, job.key)
            testing.wait_until(lambda: _records(testing, job.key) > made, "records flow")
            number = testing.kill_leader()
            job.wait_event(JobEventKind.ATTEMPT_ADOPTED)
            job.wait_checkpoints(job.seen(COMPLETED) + 1)
        testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        status = job.check_exact()
        assert (status.attempt, status.restarts) == (1, 0)
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


@pytest.mark.rotating
@pytest.mark.parametrize("backend", ["filesystem", "rocksdb"])
def test_a_restart_from_local_copies_needs_no_storage(testing: TestingCluster, backend: str) -> None:
    """taskmanager-0 is the standby of both, and goes on with the subtasks of the other one."""
    rare = CheckpointOptions(interval_ms=3_600_000)  # the savepoint is the newest snapshot to the end
    key = f"copies-{backend}"
    with KeyedJob(testing, key, BACKENDS[backend], checkpoints=rare, standby_replicas=1) as job:
        testing.wait_until(lambda: _records(testing, job.key) > 0, "it runs")
        files = _files_of(path_of(testing.client.savepoint(job.key)))
        testing.wait_until(lambda: files <= _copies(testing, 0), "the standby has a copy of every file")
        testing.wait_until(lambda: _is_complete(testing, job.key, "taskmanager-0"), "the status says so")
        with storage_away(testing):
            testing.cluster.kill("taskmanager", 1)
            job.wait_event(JobEventKind.TASK_MANAGER_LOST)
            testing.wait_until(lambda: job.seen(JobEventKind.FIRST_RECORD, attempt=2) > 0, "records flow again")
            assert job.status.restarts == 1
        job.check_exact()
    testing.wait_until(lambda: not _copies(testing, 0), "nothing is left of a job that has ended")


def _files_of(metadata: Path) -> set[str]:
    """Checksums of the files of a snapshot."""
    found = decode(CheckpointMetadata, metadata.read_bytes())
    return {handle.checksum for state in found.subtasks for handle in files_of(state)}


def _copies(testing: TestingCluster, number: int) -> set[str]:
    """Checksums of the files that a task manager keeps copies of."""
    found = Path(testing.cluster.directory).rglob(f"{COPIES_PREFIX}*/*-sha256-*")
    return {f"sha256:{path.name.rpartition('-')[2]}" for path in found if f"taskmanager-{number}" in path.parts}


def _is_complete(testing: TestingCluster, key: str, name: str) -> bool:
    """Whether a task manager has every file of the newest snapshot, as the leader knows."""
    standby = testing.client.job(key).standby_copies
    found = [keeper for keeper in standby.keepers if keeper.task_manager_id == name] if standby is not None else []
    return any(keeper.files_kept == keeper.files > 0 and keeper.complete_id == keeper.checkpoint_id for keeper in found)


def _message(testing: TestingCluster, key: str) -> str:
    return testing.client.job(key).message


def _is_in_trouble(testing: TestingCluster, key: str) -> bool:
    return testing.client.job(key).storage_trouble is not None


def _records(testing: TestingCluster, key: str) -> int:
    return sum(operator.records_in for operator in testing.client.job(key).operators)
