"""Task managers and leaders die while snapshots build on one another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lockgate_proto.messages import CompletedCheckpoint, FilesystemBackend, MemoryBackend, RocksdbBackend, StateBackend

from tests.chaos.keyed_job import KeyedJob
from tests.chaos.testing_cluster import History, TestingCluster
from tests.drained import path_of

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

BACKENDS = {
    "filesystem": StateBackend(FilesystemBackend(), full_every=6),
    "memory": StateBackend(MemoryBackend(), full_every=6),
    "rocksdb": StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
}


@pytest.mark.parametrize(
    ("point", "backend"),
    [
        ("after-upload", "filesystem"),
        ("before-ack", "rocksdb"),
        pytest.param("after-upload", "rocksdb", marks=pytest.mark.soak),
        pytest.param("after-upload", "memory", marks=pytest.mark.soak),
        pytest.param("before-ack", "filesystem", marks=pytest.mark.soak),
        pytest.param("before-ack", "memory", marks=pytest.mark.soak),
    ],
)
def test_a_task_manager_that_dies_between_upload_and_ack_of_an_increment(
    testing: TestingCluster, backend: str, point: str
) -> None:
    before = testing.arm("taskmanager", 0, f"{point}:9")
    key = f"{point}-{backend}"
    with testing.history() as history, KeyedJob(testing, key, BACKENDS[backend]) as job:
        job.wait_checkpoints(1, attempt=2)
        assert before not in testing.pids("taskmanager")
        testing.wait_until(lambda: bool(increments(history, key)), "an increment is completed")
        job.check_exact()
    assert all(increment.written_bytes < increment.size_bytes for increment in increments(history, key))
    history.check()
    testing.wait_until(lambda: not _databases(testing), "no database is left over")


def increments(history: History, key: str) -> list[CompletedCheckpoint]:
    """Those of a job that were seen, and build on an earlier snapshot."""
    return [
        checkpoint
        for (other, _), checkpoint in list(history.completed.items())
        if other == key and checkpoint.incremental
    ]


def _databases(testing: TestingCluster) -> list[Path]:
    """What stands in the task managers' folders for databases, apart from their locks.

    To os.walk a folder that is removed while it looks is an empty one; to Path.glob that is an error.
    """
    walk = [node for node in os.walk(testing.cluster.directory) if Path(node[0]).name.startswith("lockgate-state-")]
    return [Path(at, name) for at, folders, files in walk for name in (*folders, *files) if name != "lock"]


def test_a_leader_that_dies_leaves_no_shared_file_behind(testing: TestingCluster) -> None:
    with KeyedJob(testing, "increments-leader", BACKENDS["filesystem"]) as job:
        job.wait_checkpoints(4)
        folder = _folder(testing.client.checkpoints(job.key)[0])
        testing.kill_leader()
        abandoned = folder / "shared" / "1-a1-totals-0-nobody.state"
        abandoned.write_bytes(b"left behind by a dead leader")
        testing.wait_until(lambda: not abandoned.exists(), "the new leader collects what nothing refers to")
        savepoint = job.check_exact().last_checkpoint
    assert savepoint is not None
    testing.client.dispose_savepoint(job.key, savepoint.checkpoint_id)
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert not left, "of a job that has ended only its savepoint stays, and that was disposed of"


def test_a_job_that_has_come_to_its_end_leaves_nothing_behind(testing: TestingCluster) -> None:
    with KeyedJob(testing, "increments-end", BACKENDS["filesystem"], seconds=2) as job:
        last = job.check_exact().last_checkpoint
        assert last is not None
        testing.wait_until(lambda: not _folder(last).exists(), "the folder of the run is gone")


def _folder(checkpoint: CompletedCheckpoint) -> Path:
    """Of everything that the job's run keeps."""
    return path_of(checkpoint).parent.parent
