"""An interval join with a task manager killed: every pair once, whichever of the two rows came before the snapshot."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lockgate_proto.messages import JobState

from lockgate import Job
from lockgate.drill.observer import JobObserver
from lockgate.drill.timeline import checkpoint_counts
from tests.chaos.ground import Ground
from tests.ledger_job import PATIENCE_S

pytestmark = pytest.mark.chaos

PARTITIONS, ROWS, RATE, KEYS = 2, 6_000, 1_500.0, 37
LEFT_TIME = "sequence * 10 - (sequence * 7919 % 50) * 10"  # up to 490 ms out of order
RIGHT_TIME = "sequence * 10 - (sequence * 104729 % 50) * 10"
LOWER, UPPER = -1_000, 3_000


def pipeline(folder: Path) -> Job:
    job = Job("interval join", parallelism=2, checkpoint_interval_ms=300)

    def side(key: str, time: str) -> object:
        rows = job.generate(ROWS, rate=RATE, partitions=PARTITIONS)
        timed = rows.select(f"sequence % {KEYS} AS {key}", "sequence", "partition", f"{time} AS at")
        return timed.event_time("at", out_of_order="490 ms").key_by(key)

    left, right = side("k", LEFT_TIME), side("number", RIGHT_TIME)
    pairs = left.interval_join(right, lower=LOWER, upper=UPPER, right_prefix="r_")  # type: ignore[attr-defined]
    pairs.select("sequence", "partition", "r_sequence", "r_partition").write_parquet(folder / "out")
    return job


def expected() -> Counter[tuple[int, int, int, int]]:
    found: Counter[tuple[int, int, int, int]] = Counter()
    reach = (UPPER + 1_000) // 10
    for left in range(ROWS):
        at = left * 10 - (left * 7919 % 50) * 10
        for right in _near(left, reach):
            if at + LOWER <= right * 10 - (right * 104729 % 50) * 10 <= at + UPPER:
                found.update((left, a, right, b) for a in range(PARTITIONS) for b in range(PARTITIONS))
    return found


def _near(left: int, reach: int) -> range:
    """The right rows with the key of a left one that are not too far away by number."""
    first = left - reach // KEYS * KEYS
    return range(max(first, left % KEYS), min(ROWS, left + reach + 1), KEYS)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_pairs_are_exact_when_a_task_manager_is_killed(ground: Ground, seed: int) -> None:
    choice = random.Random(seed)
    key = f"interval-join-{seed}"
    folder = ground.make_folder(key)
    ground.wait_whole()
    ground.client.submit(key, pipeline(folder).graph())
    observer = JobObserver(ground.client, key)
    try:
        assert observer.wait_for(lambda: checkpoint_counts(observer.events)[0] >= 2, PATIENCE_S)
        observer.wait_for(lambda: False, choice.uniform(0, 1.0))
        ground.cluster.kill("taskmanager", choice.randrange(2))
        assert observer.wait_for(lambda: observer.has_ended, PATIENCE_S)
        assert observer.status is not None
        assert observer.status.state is JobState.FINISHED, observer.status.error
        assert observer.status.attempt >= 2
        assert sum(one.records_late for one in observer.status.operators) == 0
    finally:
        observer.close()
    rows = [row for path in (folder / "out").glob("part-*") for row in pq.read_table(path).to_pylist()]
    assert Counter(tuple(row.values()) for row in rows) == expected()
