"""A task manager that is really slow: most of the time it is stopped. A subtask leaves it, and nothing is lost."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from lockgate_proto.messages import JobEventKind

from examples.frame.slow import slowed
from lockgate import Job, count, stragglers, sum_
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

KEYS = 50
WORK = [sum(x * number % 7 for x in range(1, 61)) for number in range(7)]  # by what the number leaves, divided by 7
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


def expected(rows: list[int]) -> dict[str, tuple[int, int, int]]:
    """Count, sum and work of every key. rows: of each partition, which counts them from 0."""
    found = {}
    for partition, end in enumerate(rows):
        for remainder in range(min(KEYS, end)):
            numbers = range(remainder, end, KEYS)
            work = sum(WORK[number % 7] for number in numbers)
            found[f"{partition}-{remainder}"] = len(numbers), sum(numbers), work
    return found


def check_exact(database: str, rows: list[int]) -> None:
    """Compares every key and every column with the input."""
    with contextlib.closing(sqlite3.connect(database)) as file:
        read = file.execute("SELECT k, n, total, work FROM totals").fetchall()
    found = {key: (int(n), int(total), int(work)) for key, n, total, work in read}
    assert len(found) == len(read), "a key is there twice"
    assert found == expected(rows)


def started(pid: int) -> int:
    """When a process was started, in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19])


def test_a_subtask_leaves_a_slow_task_manager_and_the_result_is_exact(testing: TestingCluster) -> None:
    folder = testing.make_folder("straggler")
    database = str(folder / "totals.db")
    heavy = heavy_job("straggler", database)
    with WatchedJob(testing, heavy.key, heavy.graph()) as job:
        job.wait_checkpoints(2)
        pids = {
            subtask.task_manager_id: testing.cluster.pids()[subtask.task_manager_id] for subtask in job.status.subtasks
        }
        assert len(pids) == 2
        slow = max(pids, key=lambda name: started(pids[name]))  # one that was just started is the slower one anyway
        with slowed(pids[slow]):
            job.wait_event(JobEventKind.SUBTASK_MOVED)
        job.wait_checkpoints(1, attempt=2)
        (read,) = job.drain().values()
        assert (job.status.attempt, job.status.restarts) == (2, 0)
        assert f"; moved from {slow} (" in job.status.straggler
    check_exact(database, generated(read, 2))
