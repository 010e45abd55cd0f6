"""Objects with state in `map` and `filter`, with a task manager or the leader killed: every record counts once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import JobEventKind

from lockgate import Job
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE = 4, 800.0


def pipeline(folder: Path, mode: str, failover: str) -> Job:
    class Numbered:
        """Numbers the records of its subtask, from 1 on without a gap."""

        state_fields = ("count",)

        def open(self, context: Any) -> None:
            self.subtask, self.count = context.subtask, 0

        def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
            self.count += 1
            return {**record, "subtask": self.subtask, "number": self.count}

    class FirstOfHundred:
        """Keeps the first of 100 numbers of a partition; reports the parts of its state that have changed."""

        on_rescale = "split"

        def open(self, context: Any) -> None:  # noqa: ARG002
            self.highest: dict[str, int] = {}
            self.changed: set[str] = set()

        def __call__(self, record: dict[str, Any]) -> bool:
            name, hundred = str(record["partition"]), record["sequence"] // 100
            is_first = hundred > self.highest.get(name, -1)
            if is_first:
                self.highest[name] = hundred
                self.changed.add(name)
            return is_first

        def snapshot_state(self) -> dict[str, int]:
            return self.highest

        def changes_since_last_checkpoint(self) -> dict[str, int]:
            names, self.changed = self.changed, set()
            return {name: self.highest[name] for name in names}

        def restore_state(self, state: dict[str, int]) -> None:
            self.highest = dict(state)

    job = Job("object-state", parallelism=2, checkpoint_interval_ms=300, leader_failover=failover, checkpoint_mode=mode)
    rows = job.generate(rate=RATE, partitions=PARTITIONS).select("partition", "sequence").key_by("partition")
    numbered = rows.map(Numbered(), schema="partition BIGINT, sequence BIGINT, subtask INT, number BIGINT")
    numbered.write_parquet(folder / "numbered")
    numbered.filter(FirstOfHundred()).write_parquet(folder / "first")
    return job


@pytest.mark.parametrize(
    ("target", "mode"),
    [
        ("taskmanager", "exactly_once"),
        pytest.param("leader", "unaligned", marks=pytest.mark.soak),
        pytest.param("leader", "stop_the_world", marks=pytest.mark.soak),
        pytest.param("both", "exactly_once", marks=pytest.mark.soak),
    ],
)
def test_state_of_objects_is_exact_when_a_process_is_killed(testing: TestingCluster, target: str, mode: str) -> None:
    choice = random.Random(mode)
    key = f"object-state-{target}-{mode}"
    folder = testing.make_folder(key)
    failover = "reattach" if target == "both" else "restart"
    with WatchedJob(testing, key, pipeline(folder, mode, failover).graph()) as job:
        job.wait_checkpoints(2)
        job.pause(choice.uniform(0, 0.5))
        if target != "taskmanager":
            testing.kill_leader()
        if target == "both":  # the next attempt restores what the adopted one has built on older checkpoints
            job.wait_event(JobEventKind.ATTEMPT_ADOPTED)
            job.wait_checkpoints(7)
        if target != "leader":
            testing.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_checkpoints(1, attempt=2)
        (rows,) = job.drain().values()
    ends = generated(rows, PARTITIONS)
    found = rows_of(folder / "numbered")
    assert Counter((row["partition"], row["sequence"]) for row in found) == Counter(
        (partition, sequence) for partition, end in enumerate(ends) for sequence in range(end)
    )
    for subtask in range(2):
        numbers = sorted(row["number"] for row in found if row["subtask"] == subtask)
        assert numbers == list(range(1, len(numbers) + 1)), "a record counted twice, or not at all"
    first = sorted((row["partition"], row["sequence"]) for row in rows_of(folder / "first"))
    assert first == [(partition, sequence) for partition, end in enumerate(ends) for sequence in range(0, end, 100)]
