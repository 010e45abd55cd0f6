"""Payments scored by a model that is swapped under load: which version scored each, and that no snapshot has two."""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.frame import Example, Place, Scene, Step, Wrong
from examples.frame.example import compare, json_rows
from lockgate import Job, JobHandle

_PARTITIONS, _RATE, _RECORDS = 4, 4_000, 160_000
_CHANNELS, _VERSIONS = 3, 4
_PATIENCE_S, _LOOK_EVERY_S = 120.0, 0.1
_NAME = re.compile(r"part-.+-(\d+)-scores-\d+-\d+\.json")


class Fraud:
    """Scores payments. Each model changes one weight of the one before, so a lost or repeated one stays visible."""

    state_fields = ("version", "weights")

    def __init__(self) -> None:
        """With the model of the payments that come before any other."""
        self.version, self.weights = 0, [1] * _CHANNELS

    def process_broadcast(self, record: dict[str, Any]) -> None:
        """The next model."""
        self.version = record["version"]
        self.weights[record["channel"]] += record["change"]

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        """A payment."""
        number = record["sequence"]
        score = _amount(number) * self.weights[number % _CHANNELS]
        return {"partition": record["partition"], "sequence": number, "version": self.version, "score": score}


def _amount(number: int) -> int:
    return 1 + number * 7_919 % 1_000


def _models(place: Place) -> list[dict[str, int]]:
    choice = place.random()
    return [
        {"version": version, "channel": choice.randrange(_CHANNELS), "change": choice.randrange(1, 100)}
        for version in range(1, _VERSIONS + 1)
    ]


def _make_input(place: Place) -> int:
    (place.input / "models").mkdir()
    return _RECORDS


def _pipeline(place: Place) -> Job:
    """The payments never end, and models are read as soon as they appear."""
    job = Job("model swap", parallelism=2, checkpoint_interval_ms=500)
    payments = job.generate(rate=_RATE, partitions=_PARTITIONS)
    schema = "version INT, channel INT, change INT"
    models = job.read_json(place.input / "models", schema=schema, continuous=True, poll_interval_ms=100)
    columns = "partition BIGINT, sequence BIGINT, version INT, score BIGINT"
    scores = payments.with_broadcast(models).map(Fraud(), schema=columns)
    scores.write_json(place.output / "scored").uid("scores")
    return job


def _swap(version: int) -> Step:
    def do(scene: Scene) -> None:
        """Waits until a committed payment was scored by it."""
        folder = scene.place.input / "models"
        model = folder / f".{version}"
        model.write_text(json.dumps(_models(scene.place)[version - 1]) + "\n", encoding="utf-8")
        os.replace(model, folder / f"{version}.json")
        never, deadline, seen = threading.Event(), time.monotonic() + _PATIENCE_S, set[Path]()
        while not _is_in_use(scene.place, version, seen):
            if time.monotonic() > deadline:
                raise Wrong(f"after {_PATIENCE_S:g} s no committed payment is scored by it")
            never.wait(_LOOK_EVERY_S)

    return Step(version / (_VERSIONS + 1), f"model {version} takes over", do)


def _is_in_use(place: Place, version: int, seen: set[Path]) -> bool:
    """Whether a file that was not seen before has a payment of this version."""
    fresh = set((place.output / "scored").glob("part-*")) - seen
    seen |= fresh
    return any(row["version"] == version for row in json_rows(fresh))


def _drain(scene: Scene) -> None:
    """Everything that was read flows out; how much that is, is the input."""
    scene.client.stop(scene.key, drain=True)
    operators = JobHandle(scene.client, scene.key).wait(_PATIENCE_S).operators
    (read,) = (operator.records_out for operator in operators if operator.operator_id.startswith("generate"))
    (scene.place.input / "generated").write_text(str(read), encoding="utf-8")


def scored(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every payment that the sink `scores` has committed, with the checkpoint that has committed it."""
    for path in folder.glob("part-*"):
        named = _NAME.fullmatch(path.name)
        assert named is not None, f"{path.name} names no checkpoint"
        for row in json_rows([path]):
            yield int(named[1]), row


def _check(place: Place) -> list[str]:
    rows = list(scored(place.output / "scored"))
    generated = int((place.input / "generated").read_text(encoding="utf-8"))
    found = {(row["partition"], row["sequence"]): (row["version"], row["score"]) for _, row in rows}
    counts = [sum(partition == number for partition, _ in found) for number in range(_PARTITIONS)]
    if not len(rows) == len(found) == sum(counts) == generated:
        return [f"{len(rows)} payments are scored, {len(found)} different ones, and {generated} were read"]
    payments = [(partition, number) for partition in range(_PARTITIONS) for number in range(counts[partition])]
    return [
        *compare(found, _wanted(place, found, payments), "version and score of payment"),
        *_mixed_snapshots(rows),
        *_returned(found, payments),
        *(f"no payment was scored by model {version}" for version in _unused(found)),
    ]


def _wanted(
    place: Place, found: dict[tuple[int, int], tuple[int, int]], payments: list[tuple[int, int]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """What the version that a payment names makes of it."""
    weights = [[1] * _CHANNELS]
    for model in _models(place):
        weights.append(list(weights[-1]))
        weights[-1][model["channel"]] += model["change"]
    wanted = {}
    for payment in payments:
        version, number = found.get(payment, (0, 0))[0], payment[1]
        wanted[payment] = (version, _amount(number) * weights[version][number % _CHANNELS])
    return wanted


def _mixed_snapshots(rows: list[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """A snapshot has one version, in both subtasks: none is newer in what it commits, and none is older behind it.

    That holds across a restart, too: what was committed is never taken back.
    """
    spans: dict[int, tuple[int, int]] = {}
    for checkpoint, row in rows:
        low, high = spans.get(checkpoint, (row["version"], row["version"]))
        spans[checkpoint] = (min(low, row["version"]), max(high, row["version"]))
    highest = 0
    for checkpoint, (low, high) in sorted(spans.items()):
        if low < highest:
            yield f"checkpoint {checkpoint} has payments of version {low}, and one before it has some of {highest}"
        highest = max(highest, high)


def _returned(found: dict[tuple[int, int], tuple[int, int]], payments: list[tuple[int, int]]) -> Iterator[str]:
    """Payments of a partition come in order, so their versions only rise."""
    for payment, following in itertools.pairwise(payments):
        if payment[0] == following[0] and found[payment][0] > found[following][0]:
            yield f"payment {following} was scored by version {found[following][0]}, the one before it by a newer one"


def _unused(found: dict[tuple[int, int], tuple[int, int]]) -> list[int]:
    return sorted({*range(_VERSIONS + 1)} - {version for version, _ in found.values()})


def _summary(place: Place) -> str:
    versions = [row["version"] for _, row in scored(place.output / "scored")]
    return "payments by version: " + ", ".join(f"{versions.count(version):,}" for version in range(_VERSIONS + 1))


EXAMPLE = Example(
    "payments scored by a model that is swapped under load",
    _make_input,
    _pipeline,
    _check,
    steps=(
        *map(_swap, range(1, _VERSIONS + 1)),
        Step(1.0, "stop, when everything that was read has flowed out", _drain),
    ),
    summary=_summary,
)
