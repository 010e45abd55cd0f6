"""Rows appended and upserted in PostgreSQL are exact when task managers and the database server itself die."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import JobState

from lockgate import Job, JobHandle, Restart, count
from tests.chaos.ground import Ground
from tests.ledger_job import PATIENCE_S
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.chaos

PARTITIONS, ROWS, RATE = 2, 1_500, 300


class Appended:
    """A job of some seconds that appends every row to one table and upserts the totals in another."""

    def __init__(self, ground: Ground, server: PostgresqlServer, key: str) -> None:
        self._ground = ground
        self._server = server
        self._url = server.new_database()
        job = Job(key, key=key, parallelism=2, checkpoint_interval_ms=300, restart=Restart.fixed_delay(200))
        rows = job.generate(ROWS, rate=RATE, partitions=PARTITIONS)
        rows.write_sql(self._url, "every", mode="append")
        rows.key_by("partition").aggregate(n=count()).write_sql(self._url, "totals", key="partition")
        ground.client.submit(key, job.graph())
        self._handle = JobHandle(ground.client, key)

    def wait_for_rows(self) -> None:
        """Until a checkpoint's rows are in the database."""
        self._ground.wait_until(
            lambda: (
                bool(self._server.execute("SELECT 1 FROM pg_tables WHERE tablename = 'every'", self._url))
                and self._server.execute("SELECT count(*) FROM every", self._url)[0][0] > 0
            ),
            "rows in the database",
        )

    def check_exact(self) -> int:
        """Waits for the end; returns how many attempts it took."""
        self._ground.wait_until(
            lambda: self._handle.status().state in (JobState.FINISHED, JobState.FAILED), "the job's end", PATIENCE_S
        )
        status = self._handle.status()
        assert status.state is JobState.FINISHED, status.error
        found = self._server.execute(
            "SELECT partition, count(*), count(DISTINCT sequence) FROM every GROUP BY 1", self._url
        )
        assert sorted(found) == [(number, ROWS, ROWS) for number in range(PARTITIONS)]
        totals = self._server.execute("SELECT partition, n FROM totals", self._url)
        assert sorted(totals) == [(number, ROWS) for number in range(PARTITIONS)]
        return status.attempt


@pytest.mark.parametrize("point", [pytest.param("before-commit", marks=pytest.mark.soak), "after-commit"])
def test_a_task_manager_that_dies_at_a_commit_adds_and_loses_nothing(
    ground: Ground, postgresql: PostgresqlServer, point: str
) -> None:
    """after-commit: the rows are in the database, and the leader never hears of it."""
    ground.arm("taskmanager", 0, f"{point}:3")
    ground.wait_whole()
    assert Appended(ground, postgresql, f"append-{point}").check_exact() >= 2


def test_a_database_server_that_dies_in_the_middle_holds_the_job_up_and_no_more(
    ground: Ground, own_postgresql: PostgresqlServer
) -> None:
    job = Appended(ground, own_postgresql, "append-server")
    job.wait_for_rows()
    own_postgresql.kill()
    ground.wait_until(
        lambda: (
            "Connection refused" in (ground.client.job("append-server").message or "")
            or ground.client.job("append-server").restarts > 0
        ),
        "the job notices",
    )
    own_postgresql.start()
    assert job.check_exact() >= 2
