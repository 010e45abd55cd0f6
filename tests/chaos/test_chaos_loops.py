"""A task manager dies while records circle in a loop, and every lap is counted once."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from lockgate import Job, ProcessFunction, ValueState, count
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE, PARTS, LAPS = 2, 1_000.0, 100, 12


def _job(folder: str, is_keyed: bool) -> Job:
    """is_keyed: the laps of a record are counted in the state of a process function inside, and not by the record; a
    deduplication inside passes each lap on, which it would not if a record circled twice.
    """

    class Laps(ProcessFunction):
        laps = ValueState("INT")

        def process(self, context: Any, row: dict[str, Any]) -> Iterator[dict[str, Any]]:  # noqa: ARG002
            assert self.laps.get(0) == row["laps"], "its state and the record are of different laps"
            self.laps.set(row["laps"] + 1)
            yield {**row, "laps": self.laps.get()}

    job = Job("laps", parallelism=2, checkpoint_interval_ms=300)
    loop = job.generate(rate=RATE, partitions=PARTITIONS).select("*", "0 AS laps").loop()
    if is_keyed:
        once = loop.key_by("partition", "sequence", "laps").deduplicate()
        counted = once.key_by("partition", "sequence")
        lap = counted.process(Laps(), schema="partition INT, sequence BIGINT, laps INT")
    else:
        lap = loop.select("partition", "sequence", "laps + 1 AS laps")
    loop.close_with(lap.filter(f"laps < 1 + sequence % {LAPS}").rebalance())
    ends = lap.select(
        "partition", f"sequence % {PARTS} AS part", f"IF(laps >= 1 + sequence % {LAPS}, 1, NULL) AS ended"
    )
    totals = ends.key_by("partition", "part").aggregate(laps=count(), rows=count("ended"))
    totals.write_sql(f"sqlite:///{folder}/laps.db", "laps", key=("partition", "part"))
    return job


@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_task_manager_killed_while_records_circle(testing: TestingCluster, is_keyed: bool) -> None:
    key = f"laps-{is_keyed}".lower()
    folder = testing.make_folder(key)

    def holds_a_log() -> bool:
        last = testing.client.job(key).last_checkpoint
        return last is not None and last.channel_state_bytes > 0

    with WatchedJob(testing, key, _job(str(folder), is_keyed).graph()) as job:
        testing.wait_until(holds_a_log, "a snapshot holds what circles")
        testing.cluster.kill("taskmanager", 0)
        job.wait_checkpoints(1, attempt=2)
        (read,) = job.drain().values()
    wanted = {
        (partition, part): (sum(1 + row % LAPS for row in range(part, end, PARTS)), len(range(part, end, PARTS)))
        for partition, end in enumerate(generated(read, PARTITIONS))
        for part in range(min(PARTS, end))
    }
    with contextlib.closing(sqlite3.connect(folder / "laps.db")) as database:
        rows = database.execute("SELECT partition, part, laps, rows FROM laps").fetchall()
    assert {(partition, part): (laps, ended) for partition, part, laps, ended in rows} == wanted
