"""A Delta table has each record once when the leader dies, and when a task manager dies around a commit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lockgate import Job, Restart
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import PATIENCE_S, generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE = 2, 300


class Appended(WatchedJob):
    """A job whose two subtasks append every row to one table, until `check_exact`."""

    def __init__(self, testing: TestingCluster, key: str) -> None:
        self._table = testing.make_folder(key) / "numbers"
        options = {"parallelism": 2, "checkpoint_interval_ms": 300, "leader_failover": "restart"}
        job = Job(key, key=key, restart=Restart.fixed_delay(200), **options)
        job.generate(rate=RATE, partitions=PARTITIONS).write_delta(self._table)
        super().__init__(testing, key, job.graph())

    def wait_for_rows(self) -> None:
        """Until a checkpoint has brought more rows into the table than there are now."""
        before = _count(self._table)
        self._testing.wait_until(lambda: _count(self._table) > before, "rows in the table")

    def check_exact(self, attempt: int) -> None:
        """Once that attempt or a later one goes on: ends the input, and compares the table with it."""
        self.wait_checkpoints(1, attempt)
        (read,) = self.drain().values()
        rows = DeltaTable(self._table).to_pyarrow_table()
        found = Counter(zip(rows.column("partition").to_pylist(), rows.column("sequence").to_pylist(), strict=True))
        ends = enumerate(generated(read, PARTITIONS))
        assert found == Counter((partition, number) for partition, end in ends for number in range(end))


def _count(table: Path) -> int:
    return int(DeltaTable(table).count()) if DeltaTable.is_deltatable(str(table)) else 0


def test_a_leader_that_is_killed_twice_changes_no_row(testing: TestingCluster) -> None:
    with Appended(testing, "delta-leader") as job:
        for attempt in (1, 2):
            job.wait_checkpoints(1, attempt)  # without it, the second leader may die before it starts an attempt
            job.wait_for_rows()
            number = testing.kill_leader()
            testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        job.check_exact(attempt=3)


@pytest.mark.parametrize("point", [pytest.param("before-commit", marks=pytest.mark.soak), "after-commit"])
def test_a_task_manager_that_dies_at_a_commit_adds_and_loses_nothing(testing: TestingCluster, point: str) -> None:
    """after-commit: the rows are in the log, and the leader never learns of it."""
    testing.arm("taskmanager", 0, f"{point}:3")
    with Appended(testing, f"delta-{point}") as job:
        job.check_exact(attempt=2)
