"""Process functions with state and timers of both kinds, with a task manager or the leader killed: each fires once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from lockgate_proto.messages import JobState

from lockgate import Job, MapState, ProcessFunction, ValueState
from lockgate.drill.observer import JobObserver
from lockgate.drill.timeline import checkpoint_counts
from tests.chaos.ground import Ground
from tests.ledger_job import PATIENCE_S

pytestmark = pytest.mark.chaos

PARTITIONS, ROWS, RATE, KEYS = 4, 6_000, 800.0, 37
TIME = "sequence * 10 - (sequence * 7919 % 50) * 10"  # up to 490 ms out of order


def pipeline(folder: Path) -> Job:
    class Buckets(ProcessFunction):
        """Counts by second of event time, told when the second is over; and once, a little later, that a key is new."""

        counts = MapState("BIGINT", "BIGINT")
        is_told = ValueState("BOOLEAN")

        def process(self, context: Any, row: dict[str, Any]) -> None:
            second = row["at"] // 1000
            self.counts[second] = self.counts.get(second, 0) + 1
            context.timers.register_event_time(second * 1000 + 999)
            if not self.is_told.exists():
                self.is_told.set(True)
                context.timers.register_processing_time(context.now_ms + 200)

        def on_timer(self, context: Any, timer: Any) -> Any:
            if not timer.is_event_time:
                return {"k": context.key, "second": -1000, "n": 1}
            second = timer.time_ms // 1000
            count = self.counts[second]
            del self.counts[second]
            return {"k": context.key, "second": second, "n": count}

    job = Job("process", parallelism=2, checkpoint_interval_ms=300, full_snapshot_every=3)
    rows = job.generate(ROWS, rate=RATE, partitions=PARTITIONS)
    timed = rows.select("sequence % 37 AS k", f"{TIME} AS at", "partition", "sequence").event_time(
        "at", out_of_order="490 ms"
    )
    once = timed.key_by("partition", "sequence").deduplicate()  # nothing is there twice: nothing may be lost
    again = once.union(timed.filter("sequence % 3 = 0").select("*")).key_by("partition", "sequence").deduplicate()
    buckets = again.key_by("k").process(Buckets(), schema="k BIGINT, second BIGINT, n BIGINT")
    buckets.write_parquet(folder / "out")
    return job


def expected() -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for sequence in range(ROWS):
        at = sequence * 10 - (sequence * 7919 % 50) * 10
        counts[sequence % KEYS, at // 1000] += PARTITIONS
    return counts + Counter({(key, -1000): 1 for key in range(KEYS)})


@pytest.mark.parametrize("target", ["taskmanager", pytest.param("leader", marks=pytest.mark.soak)])
def test_timers_fire_once_and_state_is_exact_when_a_process_is_killed(ground: Ground, target: str) -> None:
    choice = random.Random(target)
    key = f"process-{target}"
    folder = ground.make_folder(key)
    ground.wait_whole()
    ground.client.submit(key, pipeline(folder).graph())
    observer = JobObserver(ground.client, key)
    try:
        assert observer.wait_for(lambda: checkpoint_counts(observer.events)[0] >= 1, PATIENCE_S)
        observer.wait_for(lambda: False, choice.uniform(0, 0.5))
        if target == "leader":
            ground.kill_leader()
        else:
            ground.cluster.kill("taskmanager", choice.randrange(2))
        assert observer.wait_for(lambda: observer.has_ended, PATIENCE_S)
        assert observer.status is not None
        assert observer.status.state is JobState.FINISHED, observer.status.error
        assert observer.status.attempt >= 2
    finally:
        observer.close()
    rows = [row for path in (folder / "out").glob("part-*") for row in pq.read_table(path).to_pylist()]
    found = {(row["k"], row["second"]): row["n"] for row in rows}
    assert found == dict(expected())
    assert len(rows) == len(found), "a timer has fired twice"
