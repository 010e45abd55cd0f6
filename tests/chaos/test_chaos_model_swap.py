"""Payments scored by a model that is swapped several times a second, with a process killed in between.

A model is several records of the broadcast stream, so that most snapshots fall between two of them. How far that stream
had been read at a checkpoint says which model every subtask had in that snapshot: what the checkpoint commits was
scored by that model or an older one, down to the one of the checkpoint before.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import JobEventKind

from examples.runnable.model_swap import scored
from lockgate import Job
from lockgate.client import ClientError
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE = 4, 800.0
CHANNELS, MODELS_A_SECOND = 7, 6
ADDED = "1 + sequence * 31 % 97"  # by each record of a model to the weight of its channel


def pipeline(folder: Path, failover: str) -> Job:
    class Fraud:
        """Adds each model to the sum of those before, so that one that is lost, repeated or mixed up stays visible."""

        state_fields = ("version", "weights", "collected")

        def __init__(self) -> None:
            self.version, self.weights, self.collected = 0, [1] * CHANNELS, []

        def process_broadcast(self, record: dict[str, Any]) -> None:
            """Changes over with the last record of a model."""
            self.collected.append(record["added"])
            if len(self.collected) == CHANNELS:
                self.weights = [sum(pair) for pair in zip(self.weights, self.collected, strict=True)]
                self.version, self.collected = self.version + 1, []

        def __call__(self, payment: dict[str, Any]) -> dict[str, Any]:
            number = payment["sequence"]
            return {**payment, "version": self.version, "score": (number + 1) * self.weights[number % CHANNELS]}

    job = Job("models", parallelism=2, checkpoint_interval_ms=300, retained_checkpoints=300, leader_failover=failover)
    changes = job.generate(rate=CHANNELS * MODELS_A_SECOND, partitions=1).uid("models").parallelism(1)
    models = changes.select(f"{ADDED} AS added")
    payments = job.generate(rate=RATE, partitions=PARTITIONS).uid("payments").select("partition", "sequence")
    columns = "partition BIGINT, sequence BIGINT, version BIGINT, score BIGINT"
    payments.with_broadcast(models).map(Fraud(), schema=columns).write_json(folder).uid("scores")
    return job


def versions(testing: TestingCluster, key: str) -> dict[int, int]:
    """Of each checkpoint: how many whole models there were in front of its barrier."""
    return {
        offsets.checkpoint_id: sum(split.offset for split in source.splits) // CHANNELS
        for offsets in testing.client.offsets(key)
        for source in offsets.sources
        if source.operator_id == "models"
    }


def wait_swaps(testing: TestingCluster, key: str, more: int) -> None:
    """Until a snapshot has so many more models than the newest one now."""

    def newest() -> int:
        try:
            return max(versions(testing, key).values(), default=0)
        except ClientError:
            return 0

    wanted = newest() + more
    testing.wait_until(lambda: newest() >= wanted, f"no snapshot has {wanted} models")


def check_scores(rows: list[tuple[int, dict[str, Any]]], newest: int) -> None:
    """The score of each payment is that of the version it names."""
    weights = [[1] * CHANNELS]
    for model in range(newest):
        added = (1 + sequence * 31 % 97 for sequence in range(model * CHANNELS, (model + 1) * CHANNELS))
        weights.append([sum(pair) for pair in zip(weights[-1], added, strict=True)])
    for _, row in rows:
        number = row["sequence"]
        assert row["score"] == (number + 1) * weights[row["version"]][number % CHANNELS], row


def check_versions(rows: list[tuple[int, dict[str, Any]]], known: dict[int, int]) -> None:
    """Each payment was scored by a version of its checkpoint's interval. known: versions of some or all checkpoints."""
    ids = sorted(known)
    for checkpoint, row in rows:
        at = bisect_left(ids, checkpoint)
        oldest, newest = known[ids[at - 1]] if at else 0, known[ids[at]]
        assert oldest <= row["version"] <= newest, f"checkpoint {checkpoint}, versions {oldest} to {newest}: {row}"


def check_order(rows: list[tuple[int, dict[str, Any]]]) -> None:
    """The payments of a partition are scored in order, so their versions only rise."""
    ordered = sorted((row["partition"], row["sequence"], row["version"]) for _, row in rows)
    for (partition, _, version), after in itertools.pairwise(ordered):
        assert partition != after[0] or version <= after[2], f"{after} comes after version {version}"


@pytest.mark.parametrize(
    ("target", "failover"),
    [("taskmanager", "reattach"), ("leader", "restart"), pytest.param("both", "reattach", marks=pytest.mark.soak)],
)
def test_each_payment_is_scored_once_by_a_version_of_its_snapshot(
    testing: TestingCluster, target: str, failover: str
) -> None:
    choice = random.Random(target)
    key = f"model-swap-{target}"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, pipeline(folder, failover).graph()) as job:
        wait_swaps(testing, key, 3)
        job.pause(choice.uniform(0, 0.5))
        if target != "taskmanager":
            testing.kill_leader()
        if target == "both":
            job.wait_event(JobEventKind.ATTEMPT_ADOPTED)
            wait_swaps(testing, key, 3)
        if target != "leader":
            testing.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_checkpoints(1, attempt=2)
        wait_swaps(testing, key, 3)
        known = versions(testing, key)
        read = job.drain()
        last = job.status.last_checkpoint
    assert last is not None
    known[last.checkpoint_id] = sum(read["models"].values()) // CHANNELS
    rows = list(scored(folder))
    assert Counter((row["partition"], row["sequence"]) for _, row in rows) == Counter(
        (partition, sequence)
        for partition, end in enumerate(generated(read["payments"], PARTITIONS))
        for sequence in range(end)
    )
    check_scores(rows, max(known.values()))
    check_versions(rows, known)
    check_order(rows)
    assert len({row["version"] for _, row in rows}) > 3, "the model was not swapped under load"
