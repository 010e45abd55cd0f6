"""A task manager dies, or a job is rescaled, while snapshots hold what is in flight."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import JobEventKind

from benchmarks.unaligned import PARTITIONS, graph, wrong_rows
from lockgate import Job, ProcessFunction, ValueState
from lockgate.client.rescale import rescale
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

RATE, ROW_US, PAD_BYTES = 400.0, 4_000, 20_000
"""800 rows a second for two subtasks that can process 500; so large that no more than some thousand are in flight."""


def test_a_task_manager_killed_under_back_pressure_loses_no_record_in_flight(testing: TestingCluster) -> None:
    folder = testing.directory / "overloaded"
    key = "overloaded"
    overloaded = graph("unaligned", folder, None, rate=15_000, row_us=250, checkpoint_interval_ms=300)
    with WatchedJob(testing, key, overloaded) as job:
        job.wait_in_flight(4 << 20)
        testing.cluster.kill("taskmanager", 0)
        job.wait_checkpoints(1, attempt=2)
        (read,) = job.drain().values()
    assert wrong_rows(folder, generated(read, PARTITIONS)) == (0, 0)


def numbered(folder: Path) -> Job:
    """Numbers the rows of each key, more slowly than they come."""

    class Numbered(ProcessFunction):
        count = ValueState("BIGINT")

        def process(self, context: Any, row: dict[str, Any]) -> Any:
            time.sleep(ROW_US / 1e6)
            number = (self.count.get() or 0) + 1
            self.count.set(number)
            return {"k": context.key, "partition": row["partition"], "sequence": row["sequence"], "number": number}

    given: dict[str, Any] = {"checkpoint_interval_ms": 300, "checkpoint_mode": "unaligned", "retained_checkpoints": 500}
    job = Job("numbered", parallelism=2, **given)
    pad = f"repeat('x', {PAD_BYTES}) AS pad"
    rows = job.generate(rate=RATE, partitions=PARTITIONS).select("sequence % 37 AS k", "partition", "sequence", pad)
    made = rows.key_by("k").process(Numbered(), schema="k BIGINT, partition INT, sequence BIGINT, number BIGINT")
    made.uid("numbers").write_parquet(folder / "out")
    return job


def test_a_rescale_moves_records_in_flight_to_the_new_owners_of_their_keys_in_order(testing: TestingCluster) -> None:
    key = "numbered"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, numbered(folder).graph()) as job:
        job.wait_in_flight(PAD_BYTES)
        rescale(testing.client, key, {"numbers": 3})
        job.wait_checkpoints(1, attempt=2)
        done = [event for event in job.events if event.kind is JobEventKind.CHECKPOINT_COMPLETED and event.attempt == 1]
        restored = max(event.checkpoint_id for event in done)
        known = {snapshot.checkpoint_id: snapshot for snapshot in testing.client.checkpoints(key)}
        assert known[restored].channel_state_bytes > 0, "nothing was in flight, so nothing is proved"
        (read,) = job.drain().values()
    rows = rows_of(folder / "out")
    ends = dict(enumerate(generated(read, PARTITIONS)))
    wanted = Counter((partition, number) for partition, end in ends.items() for number in range(end))
    assert Counter((row["partition"], row["sequence"]) for row in rows) == wanted
    lanes: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    numbers: defaultdict[int, set[int]] = defaultdict(set)
    for row in sorted(rows, key=lambda row: row["number"]):
        lanes[row["k"], row["partition"]].append(row["sequence"])
        numbers[row["k"]].add(row["number"])
    counts = Counter(row["k"] for row in rows)
    assert all(found == set(range(1, counts[of_key] + 1)) for of_key, found in numbers.items())
    assert all(lane == sorted(lane) for lane in lanes.values()), "a key's rows of a partition changed their order"
