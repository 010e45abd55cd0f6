"""An interval join with a task manager killed: every pair once, whichever of the two rows came before the snapshot.

Also where rows on their way to the join are part of an unaligned snapshot: restored before anything new, they meet what
the join's own state holds.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockgate import Job
from lockgate.pipeline.stream import KeyedStream, Stream
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE, KEYS = 2, 1_500.0, 37
LEFT_TIME = "sequence * 10 - (sequence * 7919 % 50) * 10"  # up to 490 ms out of order
RIGHT_TIME = "sequence * 10 - (sequence * 104729 % 50) * 10"
LOWER, UPPER = -1_000, 3_000
PAIR_US = 50  # more than there is: some 65,000 pairs a second come to two subtasks


def pairs(job: Job) -> Stream:
    """The numbers of the two rows of each pair."""

    def side(key: str, time: str) -> KeyedStream:
        rows = job.generate(rate=RATE, partitions=PARTITIONS)
        timed = rows.select(f"sequence % {KEYS} AS {key}", "sequence", "partition", f"{time} AS at")
        return timed.event_time("at", out_of_order="490 ms").key_by(key)

    left, right = side("k", LEFT_TIME), side("number", RIGHT_TIME)
    both = left.interval_join(right, lower=LOWER, upper=UPPER, right_prefix="r_")
    return both.select("sequence", "partition", "r_sequence", "r_partition")


def pipeline(folder: Path, state: str) -> Job:
    job = Job("interval join", parallelism=2, checkpoint_interval_ms=300, state=state)
    pairs(job).write_parquet(folder / "out")
    return job


def overloaded(folder: Path) -> Job:
    """The same, slow behind the join, so that rows on their way to it are in flight at every checkpoint."""

    def slow(df: Any) -> Any:
        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(batch.num_rows * PAIR_US / 1e6)
                yield batch

        return df.mapInArrow(wait, df.schema)

    job = Job("interval join", parallelism=2, checkpoint_interval_ms=300, checkpoint_mode="unaligned")
    pairs(job).transform(slow).write_parquet(folder / "out")
    return job


def expected(lefts: list[int], rights: list[int]) -> Counter[tuple[int, int, int, int]]:
    """Every pair. lefts, rights: rows of each partition."""
    found: Counter[tuple[int, int, int, int]] = Counter()
    reach = (UPPER + 1_000) // 10
    for left in range(max(lefts)):
        at = left * 10 - (left * 7919 % 50) * 10
        for right in _near(left, reach, max(rights)):
            if at + LOWER <= right * 10 - (right * 104729 % 50) * 10 <= at + UPPER:
                sides = product(_having(lefts, left), _having(rights, right))
                found.update((left, a, right, b) for a, b in sides)
    return found


def _near(left: int, reach: int, end: int) -> range:
    """The right rows with the key of a left one that are not too far away by number."""
    first = left - reach // KEYS * KEYS
    return range(max(first, left % KEYS), min(end, left + reach + 1), KEYS)


def _having(rows: list[int], number: int) -> list[int]:
    """The partitions in which there is such a row."""
    return [partition for partition, end in enumerate(rows) if number < end]


@pytest.mark.parametrize(
    ("seed", "state"),
    [
        (1, "filesystem"),
        pytest.param(2, "filesystem", marks=pytest.mark.soak),
        pytest.param(3, "rocksdb", marks=pytest.mark.soak),
    ],
)
def test_pairs_are_exact_when_a_task_manager_is_killed(testing: TestingCluster, seed: int, state: str) -> None:
    choice = random.Random(seed)
    key = f"interval-join-{seed}"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, pipeline(folder, state).graph()) as job:
        job.wait_checkpoints(2)
        job.pause(choice.uniform(0, 1.0))
        testing.cluster.kill("taskmanager", choice.randrange(2))
        _check_exact(job, folder)


def test_rows_in_flight_to_the_join_find_each_partner_once(testing: TestingCluster) -> None:
    key = "interval-join-in-flight"
    folder = testing.make_folder(key)

    with WatchedJob(testing, key, overloaded(folder).graph()) as job:
        job.wait_in_flight(10_000)
        testing.cluster.kill("taskmanager", 0)
        _check_exact(job, folder)


def _check_exact(job: WatchedJob, folder: Path) -> None:
    """Once it goes on after the failure."""
    job.wait_checkpoints(1, attempt=2)
    (_, left), (_, right) = sorted(job.drain().items())  # in the order in which they were generated
    assert sum(operator.records_late for operator in job.status.operators) == 0
    rows = rows_of(folder / "out")
    wanted = expected(generated(left, PARTITIONS), generated(right, PARTITIONS))
    assert Counter(tuple(row.values()) for row in rows) == wanted
