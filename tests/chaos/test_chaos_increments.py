"""Task managers and leaders die while snapshots build on one another."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_proto.messages import FilesystemBackend, MemoryBackend, RocksdbBackend, StateBackend

from tests.chaos.ground import PATIENCE_S, Ground
from tests.chaos.keyed_job import KeyedJob

pytestmark = pytest.mark.chaos

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
    ground: Ground, backend: str, point: str
) -> None:
    ground.arm("taskmanager", 0, f"{point}:9")
    ground.wait_whole()
    before = ground.cluster.pids()["taskmanager-0"]
    with ground.history() as history, KeyedJob(ground, f"{point}-{backend}", BACKENDS[backend], 6) as job:
        status = job.check_exact()
    assert status.attempt >= 2
    assert ground.cluster.pids().get("taskmanager-0") != before
    mine = [one for (key, _), one in history.completed.items() if key == job.key]
    assert any(one.incremental for one in mine), "no increment was ever completed"
    assert all(one.written_bytes < one.size_bytes for one in mine if one.incremental)
    history.check()
    ground.wait_until(lambda: not _databases(ground), "nobody leaves a database behind")


def _databases(ground: Ground) -> list[Path]:
    """Folders of databases in the task managers' work folders."""
    return [path for path in ground.cluster.directory.glob("**/lockgate-state-*/*") if path.name != "lock"]


def test_a_leader_that_dies_leaves_no_shared_file_behind(ground: Ground) -> None:
    with KeyedJob(ground, "increments-leader", BACKENDS["filesystem"], 6) as job:
        job.wait_checkpoints(4)
        folder = Path(ground.client.checkpoints(job.key)[0].pointer.removeprefix("file://")).parent.parent
        number = ground.kill_leader()
        abandoned = folder / "shared" / "1-a1-totals-0-nobody.state"
        abandoned.write_bytes(b"left behind by a dead leader")
        ground.wait_until(lambda: not abandoned.exists(), "the new leader collects what nothing refers to")
        job.check_exact()
        ground.cluster.wait_ready("coordinator", number, PATIENCE_S)
        ground.wait_until(lambda: not folder.exists(), "a finished job leaves nothing behind")
