"""A task manager that is really slow: most of the time it is stopped. A subtask leaves it, and nothing is lost."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from lockgate_proto.messages import JobEventKind

from examples.frame.slow import slowed
from lockgate import Job, count, stragglers, sum_
from tests.chaos.ground import Ground
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated

pytestmark = pytest.mark.chaos

KEYS = 50
REPLACE = stragglers(factor=3, window_ms=3_000, pause_ms=60_000)


def heavy_job(name: str, database: str) -> Job:
    """Two subtasks that are never done, and whose time goes into the records."""
    job = Job(name, parallelism=2, checkpoint_interval_ms=300, replace_stragglers=REPLACE)
    rows = job.generate().sql(
        f"SELECT CONCAT(`partition`, '-', sequence % {KEYS}) AS k, sequence, "
        "aggregate(sequence(1, 60), 0L, (a, x) -> a + (x * sequence) % 7) AS work FROM input"
    )
    totals = rows.key_by("k").aggregate(n=count(), total=sum_("sequence"), work=sum_("work"))
    totals.write_sql(f"sqlite:///{database}", "totals", key="k")
    return job


def expected(rows: int, remainder: int) -> tuple[int, int]:
    """Count and sum of the numbers below `rows` that leave this remainder."""
    numbers = range(remainder, rows, KEYS)
    return len(numbers), sum(numbers)


def check_exact(database: str, rows: list[int]) -> None:
    """rows: of each partition, which counts them from 0."""
    with contextlib.closing(sqlite3.connect(database)) as file:
        found = {key: (int(n), int(total)) for key, n, total in file.execute("SELECT k, n, total FROM totals")}
    for partition, end in enumerate(rows):
        for remainder in range(KEYS):
            assert found[f"{partition}-{remainder}"] == expected(end, remainder)


def started(pid: int) -> int:
    """When a process was started, in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19])


def test_a_subtask_leaves_a_slow_task_manager_and_the_result_is_exact(ground: Ground) -> None:
    folder = ground.make_folder("straggler")
    database = str(folder / "totals.db")
    heavy = heavy_job("straggler", database)
    with WatchedJob(ground, heavy.key, heavy.graph()) as job:
        job.wait_checkpoints(2)
        pids = {one.task_manager_id: ground.cluster.pids()[one.task_manager_id] for one in job.status.subtasks}
        assert len(pids) == 2
        slow = max(pids, key=lambda name: started(pids[name]))  # one that was just started is the slower one anyway
        with slowed(pids[slow]):
            job.wait_event(JobEventKind.SUBTASK_MOVED)
        job.wait_checkpoints(1, attempt=2)
        (read,) = job.drain().values()
        assert (job.status.attempt, job.status.restarts) == (2, 0)
        assert f"; moved from {slow} (" in job.status.straggler
    check_exact(database, generated(read, 2))
