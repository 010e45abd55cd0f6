"""A task manager dies while every queue is full and snapshots hold what is in flight."""

from __future__ import annotations

import pytest

from benchmarks.unaligned import PARTITIONS, graph, wrong_rows
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated

pytestmark = pytest.mark.chaos


def test_a_task_manager_killed_under_back_pressure_loses_no_record_in_flight(testing: TestingCluster) -> None:
    folder = testing.directory / "overloaded"
    key = "overloaded"
    overloaded = graph("unaligned", folder, None, rate=15_000, row_us=250, checkpoint_interval_ms=300)
    with WatchedJob(testing, key, overloaded) as job:
        job.wait_in_flight(4 << 20)
        testing.cluster.kill("taskmanager", 0)
        job.wait_checkpoints(1, attempt=2)
        (read,) = job.drain().values()
    assert wrong_rows(folder, generated(read, PARTITIONS)) == (0, 0)
