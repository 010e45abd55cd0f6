"""Checkpoints at most once, with a task manager killed: no record is processed twice, and lost ones are counted."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lockgate import Job
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE = 4, 300.0


def pipeline(folder: Path) -> Job:
    """`called` has a line for each call of a function, in one file a process: at once, committed or not."""

    class Noted:
        """Notes each call where no rollback reaches it, as a payment would be."""

        def __init__(self, name: str) -> None:
            self.name = name

        def open(self, context: Any) -> None:  # noqa: ARG002
            path = folder / "called" / f"{self.name}-{os.getpid()}"
            self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
            os.write(self.file, f"{record['partition']} {record['sequence']}\n".encode())
            return record

    def called(frame: Any, checkpoint_id: int) -> None:  # noqa: ARG001
        with open(folder / "called" / f"batch-{os.getpid()}", "a", encoding="utf-8") as file:
            file.writelines(f"{row.partition} {row.sequence}\n" for row in frame.collect())

    schema = "partition BIGINT, sequence BIGINT"
    job = Job("at-most-once", parallelism=2, checkpoint_interval_ms=300, checkpoint_mode="at_most_once")
    rows = job.generate(rate=RATE, partitions=PARTITIONS).select("partition", "sequence")
    first = rows.map(Noted("first"), schema=schema)
    second = first.key_by("sequence").map(Noted("second"), schema=schema)
    second.write_parquet(folder / "rows")
    second.foreach_batch(called)
    return job


def called(folder: Path, name: str) -> Counter[tuple[int, int]]:
    """How often a function got each record; a line that a kill has cut off is no call that it has made."""
    lines = [line for path in (folder / "called").glob(f"{name}-*") for line in path.read_text().splitlines()]
    return Counter((int(partition), int(sequence)) for partition, sequence in map(str.split, lines))


def test_no_record_is_processed_twice_and_lost_ones_are_counted(testing: TestingCluster) -> None:
    choice = random.Random(7)
    folder = testing.make_folder("at-most-once")
    (folder / "called").mkdir()
    with WatchedJob(testing, "at-most-once", pipeline(folder).graph()) as job:
        job.wait_checkpoints(3)
        job.pause(choice.uniform(0, 0.5))
        testing.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_checkpoints(3, attempt=2)
        (rows,) = job.drain().values()
        lost = sum(operator.records_lost for operator in job.status.operators)
    ends = generated(rows, PARTITIONS)
    everything = {(partition, sequence) for partition, end in enumerate(ends) for sequence in range(end)}
    written = Counter((row["partition"], row["sequence"]) for row in rows_of(folder / "rows"))
    for name, seen in (
        ("written", written),
        *((name, called(folder, name)) for name in ("first", "second", "batch")),
    ):
        assert max(seen.values()) == 1, f"{name}: twice: {[key for key, count in seen.items() if count > 1][:5]}"
        assert set(seen) <= everything, f"{name}: beyond the positions of the savepoint"
    assert set(written) <= set(called(folder, "second")) <= set(called(folder, "first"))
    assert len(written) > 0, "nothing was written"
    assert 0 < lost == len(everything - set(written)), "each record is in the output, or counted as lost"
    assert job.status.records_read_again == 0
