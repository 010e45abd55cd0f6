"""Rows appended and upserted in PostgreSQL are exact when task managers and the database server itself die."""

from __future__ import annotations

import pytest

from lockgate import Job, Restart, count
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated
from tests.postgresql_server import PostgresqlServer

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE = 2, 300


class Appended(WatchedJob):
    """A job that appends every row to one table and upserts the totals in another, until `check_exact`."""

    def __init__(self, testing: TestingCluster, server: PostgresqlServer, key: str) -> None:
        self._server = server
        self._url = server.new_database()
        job = Job(key, key=key, parallelism=2, checkpoint_interval_ms=300, restart=Restart.fixed_delay(200))
        rows = job.generate(rate=RATE, partitions=PARTITIONS)
        rows.write_sql(self._url, "every", mode="append")
        rows.key_by("partition").aggregate(n=count()).write_sql(self._url, "totals", key="partition")
        super().__init__(testing, key, job.graph())

    def wait_for_rows(self) -> None:
        """Until a checkpoint's rows are in the database."""
        self._testing.wait_until(
            lambda: (
                bool(self._server.execute("SELECT 1 FROM pg_tables WHERE tablename = 'every'", self._url))
                and self._server.execute("SELECT count(*) FROM every", self._url)[0][0] > 0
            ),
            "rows in the database",
        )

    def check_exact(self) -> None:
        """Once it goes on after a failure: ends the input, and compares both tables with it."""
        self.wait_checkpoints(1, attempt=2)
        (read,) = self.drain().values()
        rows = list(enumerate(generated(read, PARTITIONS)))
        found = self._server.execute(
            "SELECT partition, count(*), count(DISTINCT sequence), max(sequence) FROM every GROUP BY 1", self._url
        )
        assert sorted(found) == [(number, end, end, end - 1) for number, end in rows]
        totals = self._server.execute("SELECT partition, n FROM totals", self._url)
        assert sorted(totals) == rows


@pytest.mark.parametrize("point", [pytest.param("before-commit", marks=pytest.mark.soak), "after-commit"])
def test_a_task_manager_that_dies_at_a_commit_adds_and_loses_nothing(
    testing: TestingCluster, postgresql: PostgresqlServer, point: str
) -> None:
    """after-commit: the rows are in the database, and the leader never learns of it."""
    testing.arm("taskmanager", 0, f"{point}:3")
    with Appended(testing, postgresql, f"append-{point}") as job:
        job.check_exact()


def test_a_database_server_that_dies_in_the_middle_holds_the_job_up_and_no_more(
    testing: TestingCluster, own_postgresql: PostgresqlServer
) -> None:
    with Appended(testing, own_postgresql, "append-server") as job:
        job.wait_for_rows()
        own_postgresql.kill()
        testing.wait_until(
            lambda: (
                "Connection refused" in (testing.client.job(job.key).message or "")
                or testing.client.job(job.key).restarts > 0
            ),
            "the job notices",
        )
        own_postgresql.start()
        job.check_exact()
