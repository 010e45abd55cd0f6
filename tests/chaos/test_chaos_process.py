"""Process functions with state and timers of both kinds, with a task manager or the leader killed: each fires once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lockgate import Job, MapState, ProcessFunction, ValueState
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE, KEYS = 4, 800.0, 37
TIME = "sequence * 10 - (sequence * 7919 % 50) * 10"  # up to 490 ms out of order


def pipeline(folder: Path) -> Job:
    class Buckets(ProcessFunction):
        """Counts by second of event time, emitted when it is over; and once, a little later, that a key is new."""

        counts = MapState("BIGINT", "BIGINT")
        is_reported = ValueState("BOOLEAN")

        def process(self, context: Any, row: dict[str, Any]) -> None:
            second = row["at"] // 1000
            self.counts[second] = self.counts.get(second, 0) + 1
            context.timers.register_event_time(second * 1000 + 999)
            if not self.is_reported.exists():
                self.is_reported.set(True)
                context.timers.register_processing_time(context.now_ms + 200)

        def on_timer(self, context: Any, timer: Any) -> Any:
            if not timer.is_event_time:
                return {"k": context.key, "second": -1000, "n": 1}
            second = timer.time_ms // 1000
            count = self.counts[second]
            del self.counts[second]
            return {"k": context.key, "second": second, "n": count}

    job = Job("process", parallelism=2, checkpoint_interval_ms=300, full_snapshot_every=3, leader_failover="restart")
    rows = job.generate(rate=RATE, partitions=PARTITIONS)
    timed = rows.select("sequence % 37 AS k", f"{TIME} AS at", "partition", "sequence").event_time(
        "at", out_of_order="490 ms"
    )
    once = timed.key_by("partition", "sequence").deduplicate()  # nothing is there twice: nothing may be lost
    again = once.union(timed.filter("sequence % 3 = 0").select("*")).key_by("partition", "sequence").deduplicate()
    buckets = again.key_by("k").process(Buckets(), schema="k BIGINT, second BIGINT, n BIGINT")
    buckets.write_parquet(folder / "out")
    return job


def expected(rows: list[int]) -> dict[tuple[int, int], int]:
    """The expected output for each key and second. rows: of each partition."""
    counts: Counter[tuple[int, int]] = Counter()
    for end in rows:
        for sequence in range(end):
            at = sequence * 10 - (sequence * 7919 % 50) * 10
            counts[sequence % KEYS, at // 1000] += 1
    return {**counts, **{(key, -1000): 1 for key in range(KEYS)}}


def emitted(folder: Path) -> list[tuple[tuple[int, int], int]]:
    rows = rows_of(folder / "out")
    return [((row["k"], row["second"]), row["n"]) for row in rows]


@pytest.mark.parametrize("target", ["taskmanager", pytest.param("leader", marks=pytest.mark.soak)])
def test_timers_fire_once_and_state_is_exact_when_a_process_is_killed(testing: TestingCluster, target: str) -> None:
    choice = random.Random(target)
    key = f"process-{target}"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, pipeline(folder).graph()) as job:
        job.wait_checkpoints(1)
        job.pause(choice.uniform(0, 0.5))
        if target == "leader":
            testing.kill_leader()
        else:
            testing.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_checkpoints(1, attempt=2)
        # At the end of the input those by the wall clock would not fire any more.
        testing.wait_until(
            lambda: sum(second == -1000 for (_, second), _ in emitted(folder)) >= KEYS, "every key was reported as new"
        )
        (rows,) = job.drain().values()
    found = emitted(folder)
    assert dict(found) == expected(generated(rows, PARTITIONS))
    assert len(found) == len(dict(found)), "a timer has fired twice"
