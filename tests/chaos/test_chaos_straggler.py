"""A task manager that is really slow: most of the time it is stopped. A subtask leaves it, and nothing is lost."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from lockgate_proto.messages import JobEventKind, JobState

from examples.frame.slow import slowed
from lockgate import Job, count, stragglers, sum_
from lockgate.drill.observer import JobObserver
from tests.chaos.ground import PATIENCE_S, Ground

pytestmark = pytest.mark.chaos

KEYS = 50


def heavy_job(database: str) -> Job:
    """Two subtasks that are never done, and whose time goes into the records."""
    replace = stragglers(factor=3, window_ms=3_000, pause_ms=60_000)
    job = Job("straggler", parallelism=2, checkpoint_interval_ms=300, replace_stragglers=replace)
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


def check_exact(database: str) -> None:
    """Each partition counts from 0, so how many of it there are says what every key holds."""
    with contextlib.closing(sqlite3.connect(database)) as file:
        found = {key: (int(n), int(total)) for key, n, total in file.execute("SELECT k, n, total FROM totals")}
    for partition in range(2):
        rows = sum(n for key, (n, _) in found.items() if key.startswith(f"{partition}-"))
        assert rows > 0
        for remainder in range(KEYS):
            assert found[f"{partition}-{remainder}"] == expected(rows, remainder)


def test_a_subtask_leaves_a_slow_task_manager_and_the_result_is_exact(ground: Ground) -> None:
    database = str(ground.make_folder("straggler") / "totals.db")
    job = heavy_job(database)
    ground.client.submit(job.key, job.graph())
    observer = JobObserver(ground.client, job.key)

    def seen(kind: JobEventKind, attempt: int = 1) -> int:
        return sum(one.kind is kind and one.attempt >= attempt for one in observer.events)

    try:
        assert observer.wait_for(lambda: seen(JobEventKind.CHECKPOINT_COMPLETED) >= 2, PATIENCE_S)
        assert observer.status is not None
        places = {one.subtask: one.task_manager_id for one in observer.status.subtasks}
        assert places[0] != places[1]
        assert not seen(JobEventKind.SUBTASK_MOVED)
        with slowed(ground.cluster.pids()[places[1]]):
            assert observer.wait_for(lambda: seen(JobEventKind.SUBTASK_MOVED) > 0, PATIENCE_S)
        assert observer.wait_for(lambda: seen(JobEventKind.CHECKPOINT_COMPLETED, attempt=2) > 0, PATIENCE_S)
        ground.client.stop(job.key, drain=True)
        assert observer.wait_for(lambda: observer.has_ended, PATIENCE_S)
        status = observer.status
        assert (status.state, status.attempt, status.restarts) == (JobState.FINISHED, 2, 0)
        assert f"; moved from {places[1]} (" in status.straggler
        check_exact(database)
    finally:
        observer.close()
        if not observer.has_ended:
            ground.client.cancel(job.key)
