"""Windows of time, of counts and with a trigger, with a task manager killed: each is whole, with every record once.

Also where barriers overtake what waits: a watermark in flight then keeps its place among the records in flight.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockgate import Job, count, sliding, sum_, tumbling
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE, KEYS = 4, 1_500.0, 37
ROW_US = 4_000  # a little more than there is: 555 rows a second come to two subtasks
TIME = "sequence * 10 - (sequence * 7919 % 50) * 10"  # up to 490 ms out of order
COUNTED = 100  # records of a window, which come in about three seconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def pipeline(folder: Path, state: str) -> Job:
    job = Job("windows", parallelism=2, checkpoint_interval_ms=300, state=state)
    rows = job.generate(rate=RATE, partitions=PARTITIONS)
    timed = rows.select(f"sequence % {KEYS} AS k", "sequence", f"{TIME} AS at").event_time("at", out_of_order="490 ms")
    windows = timed.key_by("k").window(sliding("5 seconds", "1 second")).aggregate(n=count(), total=sum_("sequence"))
    windows.write_parquet(folder / "out")
    return job


def overloaded(folder: Path) -> Job:
    """The same, slow behind its windows, so that records and watermarks are in flight at every checkpoint."""

    def slow(df: Any) -> Any:
        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(batch.num_rows * ROW_US / 1e6)
                yield batch

        return df.mapInArrow(wait, df.schema)

    job = Job("windows", parallelism=2, checkpoint_interval_ms=300, checkpoint_mode="unaligned")
    rows = job.generate(rate=RATE, partitions=PARTITIONS)
    timed = rows.select(f"sequence % {KEYS} AS k", "sequence", f"{TIME} AS at").event_time("at", out_of_order="490 ms")
    windows = timed.key_by("k").window(sliding("5 seconds", "1 second")).aggregate(n=count(), total=sum_("sequence"))
    windows.transform(slow).write_parquet(folder / "out")
    return job


def expected(rows: list[int], size_ms: int = 5000, slide_ms: int = 1000) -> dict[tuple[int, int], tuple[int, int]]:
    """Count and sum of every key's windows. rows: of each partition."""
    counts: Counter[tuple[int, int]] = Counter()
    totals: Counter[tuple[int, int]] = Counter()
    for sequence in range(max(rows)):
        at = sequence * 10 - (sequence * 7919 % 50) * 10
        alike = sum(sequence < end for end in rows)
        for start in range(at - at % slide_ms, at - size_ms, -slide_ms):
            counts[sequence % KEYS, start] += alike
            totals[sequence % KEYS, start] += alike * sequence
    return {name: (counts[name], totals[name]) for name in counts}


def written(folder: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    def place(row: dict[str, Any]) -> tuple[int, int]:
        return row["k"], round((row["window_start"] - EPOCH).total_seconds() * 1000)

    rows = rows_of(folder / "out")
    return [(place(row), (row["n"], row["total"])) for row in rows]


@pytest.mark.parametrize(
    ("seed", "state"),
    [
        (1, "filesystem"),
        (1, "rocksdb"),
        *(pytest.param(2, backend, marks=pytest.mark.soak) for backend in ("memory", "rocksdb")),
    ],
)
def test_windows_fire_once_and_whole_when_a_task_manager_is_killed(
    testing: TestingCluster, seed: int, state: str
) -> None:
    key = f"windows-{state}-{seed}"
    folder = testing.make_folder(key)
    choice = random.Random(seed)
    with WatchedJob(testing, key, pipeline(folder, state).graph()) as job:
        job.wait_checkpoints(2)
        job.pause(choice.uniform(0, 1.0))
        testing.cluster.kill("taskmanager", choice.randrange(2))
        _check_exact(job, folder)


def test_windows_are_exact_when_records_and_watermarks_are_in_flight(testing: TestingCluster) -> None:
    key = "windows-in-flight"
    folder = testing.make_folder(key)

    with WatchedJob(testing, key, overloaded(folder).graph()) as job:
        job.wait_in_flight(10_000)
        testing.cluster.kill("taskmanager", 0)
        _check_exact(job, folder)


def test_count_windows_hold_each_record_once_when_a_task_manager_is_killed(testing: TestingCluster) -> None:
    """Which records are together depends on their arrival; none is twice in a window, and none is left out."""
    key = "count-windows"
    folder = testing.make_folder(key)
    made = Job("counted", parallelism=2, checkpoint_interval_ms=300)
    rows = made.generate(rate=RATE, partitions=PARTITIONS)
    rows = rows.select(f"sequence % {KEYS} AS k", f"sequence * {PARTITIONS} + `partition` AS id")
    windows = rows.key_by("k").count_window(COUNTED).process(contents, schema="k BIGINT, end BIGINT, ids ARRAY<BIGINT>")
    windows.write_parquet(folder / "out")
    with WatchedJob(testing, key, made.graph()) as job:
        job.wait_checkpoints(2)
        testing.cluster.kill("taskmanager", 1)
        job.wait_checkpoints(1, attempt=2)
        (read,) = job.drain().values()

    inputs = Counter(sequence % KEYS for end in generated(read, PARTITIONS) for sequence in range(end))
    found = rows_of(folder / "out")
    assert sorted((row["k"], row["end"]) for row in found) == sorted(
        (key, end) for key, count in inputs.items() for end in range(COUNTED, count + 1, COUNTED)
    )
    assert all(len(row["ids"]) == COUNTED for row in found)
    ids = [id_ for row in found for id_ in row["ids"]]
    assert all(id_ // PARTITIONS % KEYS == row["k"] for row in found for id_ in row["ids"])
    assert len(ids) == len(set(ids)), "a record is in two windows"


def contents(key: int, window: Any, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {"k": key, "end": window.end, "ids": [record["id"] for record in records]}


def test_pieces_of_windows_hold_each_record_once_when_a_task_manager_is_killed(testing: TestingCluster) -> None:
    """Which pieces there are depends on batches and on the clock."""
    key = "early-windows"
    folder = testing.make_folder(key)
    made = Job("early", parallelism=2, checkpoint_interval_ms=300, state="rocksdb")
    rows = made.generate(rate=RATE, partitions=PARTITIONS)
    timed = rows.select(f"sequence % {KEYS} AS k", "sequence", f"{TIME} AS at").event_time("at", out_of_order="490 ms")
    windows = timed.key_by("k").window(tumbling("10 seconds"))
    pieces = windows.trigger(every_count=20, every="200 ms", purge=True)
    pieces.aggregate(n=count(), total=sum_("sequence")).write_parquet(folder / "out")
    with WatchedJob(testing, key, made.graph()) as job:
        job.wait_checkpoints(2)
        testing.cluster.kill("taskmanager", 0)
        job.wait_checkpoints(1, attempt=2)
        (read,) = job.drain().values()

    found: Counter[tuple[int, int]] = Counter()
    totals: Counter[tuple[int, int]] = Counter()
    for place, (n, total) in written(folder):
        found[place] += n
        totals[place] += total or 0
    assert {place: (found[place], totals[place]) for place in found} == expected(
        generated(read, PARTITIONS), 10_000, 10_000
    )
    assert len(written(folder)) > 2 * len(found), "there are early results"
    finals = Counter((row["k"], row["window_start"]) for row in rows_of(folder / "out") if not row["is_early"])
    assert set(finals.values()) == {1}
    assert len(finals) == len(found)


def _check_exact(job: WatchedJob, folder: Path) -> None:
    """Once it goes on after the failure."""
    job.wait_checkpoints(1, attempt=2)
    (rows,) = job.drain().values()
    assert sum(operator.records_late for operator in job.status.operators) == 0
    found = written(folder)
    assert dict(found) == expected(generated(rows, PARTITIONS))
    assert len(found) == len(dict(found)), "a window has fired twice"
