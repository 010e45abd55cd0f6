"""An interval join with a task manager killed: every pair once, whichever of the two rows came before the snapshot."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lockgate import Job
from tests.chaos.ground import Ground
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated

pytestmark = pytest.mark.chaos

PARTITIONS, RATE, KEYS = 2, 1_500.0, 37
LEFT_TIME = "sequence * 10 - (sequence * 7919 % 50) * 10"  # up to 490 ms out of order
RIGHT_TIME = "sequence * 10 - (sequence * 104729 % 50) * 10"
LOWER, UPPER = -1_000, 3_000


def pipeline(folder: Path) -> Job:
    job = Job("interval join", parallelism=2, checkpoint_interval_ms=300)

    def side(key: str, time: str) -> object:
        rows = job.generate(rate=RATE, partitions=PARTITIONS)
        timed = rows.select(f"sequence % {KEYS} AS {key}", "sequence", "partition", f"{time} AS at")
        return timed.event_time("at", out_of_order="490 ms").key_by(key)

    left, right = side("k", LEFT_TIME), side("number", RIGHT_TIME)
    pairs = left.interval_join(right, lower=LOWER, upper=UPPER, right_prefix="r_")  # type: ignore[attr-defined]
    pairs.select("sequence", "partition", "r_sequence", "r_partition").write_parquet(folder / "out")
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


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_pairs_are_exact_when_a_task_manager_is_killed(ground: Ground, seed: int) -> None:
    choice = random.Random(seed)
    key = f"interval-join-{seed}"
    folder = ground.make_folder(key)
    with WatchedJob(ground, key, pipeline(folder).graph()) as job:
        job.wait_checkpoints(2)
        job.pause(choice.uniform(0, 1.0))
        ground.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_checkpoints(1, attempt=2)
        (_, left), (_, right) = sorted(job.drain().items())  # in the order in which they were generated
    assert sum(one.records_late for one in job.status.operators) == 0
    rows = [row for path in (folder / "out").glob("part-*") for row in pq.read_table(path).to_pylist()]
    pairs = expected(generated(left, PARTITIONS), generated(right, PARTITIONS))
    assert Counter(tuple(row.values()) for row in rows) == pairs
