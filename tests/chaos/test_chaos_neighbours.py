"""One job breaks, in its records or by its code, and takes processes with it: the job beside it comes out exact."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_ha.paths import Paths
from lockgate_ha.store import Put
from lockgate_ha.zookeeper import connect
from lockgate_proto.messages import JobState

from lockgate import Job, Restart
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import path_of, patient

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]


def test_a_job_whose_record_is_damaged_when_the_leader_dies_stops_no_other(testing: TestingCluster) -> None:
    with testing.history() as history, testing.ledger() as damaged, testing.ledger() as other:
        damaged.wait_checkpoints(1)
        other.wait_checkpoints(1)
        cluster = testing.cluster.options.cluster
        with contextlib.closing(connect(testing.cluster.zookeeper, protection=testing.protection)) as session:
            session.transact([Put(Paths(cluster).attempt(damaged.key), b"\xff")])
        testing.kill_leader()
        error = damaged.wait_end(JobState.FAILED).error
        assert "A record in ZooKeeper is corrupt" in error
        assert "/attempt" in error
        kept = testing.client.checkpoints(damaged.key)
        assert kept, "a new job can start from what was completed"
        assert all(path_of(checkpoint).is_file() for checkpoint in kept)
        other.wait_attempt(2)
        other.check_exact()
    history.check()


@pytest.mark.parametrize("deaths", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_job_whose_code_kills_its_task_managers_ends_and_stops_no_other(
    testing: TestingCluster, tmp_path: Path, deaths: int
) -> None:
    """As a job does whose Python code eats all memory."""
    key = f"deadly-{deaths}"
    mark = tmp_path / "deaths"
    mark.touch()
    restart = Restart.never() if deaths == 1 else Restart.fixed_delay(50, attempts=deaths - 1)

    def deadly(df: Any) -> Any:
        def kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    with mark.open("a") as file:
                        file.write("x")
                    os.kill(task_manager_of(os.getpid()), signal.SIGKILL)
                yield batch

        return df.mapInArrow(kill, df.schema)

    job = Job(key, key=key, checkpoint_interval_ms=300, restart=restart)
    job.generate(rate=100, partitions=1).transform(deadly).write_parquet(tmp_path / "out")
    with testing.ledger() as other:
        other.wait_checkpoints(1)
        testing.client.submit(key, patient(job.graph()))
        testing.wait_until(lambda: testing.client.job(key).state is JobState.FAILED, "the deadly job ends")
        assert testing.client.job(key).attempt == deaths
        assert len(mark.read_text()) >= deaths, "it has killed in each of its attempts"
        testing.wait_complete()
        other.wait_checkpoints(1)
        assert other.check_exact().attempt > 1


def task_manager_of(worker: int) -> int:
    """The process that has started the JVM that has started a Python worker."""

    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])

    while Path(f"/proc/{worker}/comm").read_text("utf-8").strip() != "java":
        worker = parent(worker)
    return parent(worker)
