"""Records that fail, with a task manager and the leader killed: each is skipped, counted and reported exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockgate import Job, ProcessFunction, ValueState, dead_letter
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE = 2, 8.0  # each failure takes a moment to be found
SKIPPED, LETTERS, CALLS = 101, 103, 107  # each so many-th record fails there, the first ones at the beginning
LAST = 215  # no later one fails: a slow machine would find them more slowly than new ones come


def pipeline(folder: Path) -> Job:
    class Numbered(ProcessFunction):
        """Numbers the records of a key; those on which it fails must leave no gap."""

        count = ValueState("BIGINT")

        def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
            self.count.set(self.count.get(0) + 1)
            if row["sequence"] % CALLS == 5 and row["sequence"] < LAST:
                raise ValueError("a call that fails")
            return {**row, "number": self.count.get()}

    job = Job("on-error", parallelism=2, checkpoint_interval_ms=300, leader_failover="restart")
    rows = job.generate(rate=RATE, partitions=PARTITIONS)
    # conditions: an expression that nothing uses is not computed, and then no record fails by it
    kept = rows.filter(
        f"CAST(IF(sequence % {SKIPPED} = 7 AND sequence < {LAST}, 'x', '1') AS INT) = 1", on_error="skip"
    ).uid("skips")
    checked = kept.filter(
        f"CAST(IF(sequence % {LETTERS} = 9 AND sequence < {LAST}, 'y', '1') AS INT) = 1", on_error=dead_letter("bad")
    )
    checked = checked.uid("reports")
    schema = "partition INT, sequence BIGINT, number BIGINT"
    numbered = (
        checked.key_by("partition").process(Numbered(), schema=schema, on_error=dead_letter("bad")).uid("numbers")
    )
    numbered.write_parquet(folder / "out")
    job.dead_letters("bad").write_parquet(folder / "bad")
    return job


def failing_in(sequence: int) -> str:
    """The operator that a record fails in; empty for none."""
    if sequence >= LAST:
        return ""
    if sequence % SKIPPED == 7:
        return "skips"
    if sequence % LETTERS == 9:
        return "reports"
    return "numbers" if sequence % CALLS == 5 else ""


def test_failed_records_are_counted_and_emitted_once_under_any_kill(testing: TestingCluster) -> None:
    key = "on-error"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, pipeline(folder).graph()) as job:
        job.wait_checkpoints(2)
        testing.cluster.kill("taskmanager", 0)
        job.wait_checkpoints(2, attempt=2)
        testing.kill_leader()
        job.wait_checkpoints(2, attempt=3)
        (offsets,) = job.drain().values()
    read = [(part, row) for part, end in enumerate(generated(offsets, PARTITIONS)) for row in range(end)]
    wanted = {
        name: sorted(item for item in read if failing_in(item[1]) == name) for name in ("skips", "reports", "numbers")
    }
    assert all(wanted.values()), "the job was so short that nothing has failed in an operator"
    letters: dict[str, list[tuple[int, int]]] = {"reports": [], "numbers": []}
    for letter in rows_of(folder / "bad"):
        record = json.loads(letter["record"])
        letters[letter["operator"]].append((record["partition"], record["sequence"]))
    assert {name: sorted(found) for name, found in letters.items()} == {name: wanted[name] for name in letters}
    rows = rows_of(folder / "out")
    good = sorted(item for item in read if not failing_in(item[1]))
    assert sorted((row["partition"], row["sequence"]) for row in rows) == good
    for part in range(PARTITIONS):
        numbers = sorted(row["number"] for row in rows if row["partition"] == part)
        assert numbers == list(range(1, len(numbers) + 1)), "a call that has failed has left its mark"
    counted = {
        operator.operator_id: operator.records_failed for operator in job.status.operators if operator.records_failed
    }
    assert counted == {name: len(found) for name, found in wanted.items()}
