"""A reading of a sensor passes when it is greater than the last that has passed: a process function with one value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job, ProcessFunction, ValueState

_FILES, _READINGS, _SENSORS = 4, 12_000, 400


class EmitIfGreater(ProcessFunction):
    """The classic, in a few lines."""

    last = ValueState("BIGINT")

    def process(self, context: Any, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        del context
        if row["value"] > self.last.get(-1):
            self.last.set(row["value"])
            yield row


def _make_input(place: Place) -> int:
    choice = place.random()
    for number in range(_FILES):  # a sensor writes into one file, so its readings have an order
        lines = []
        for row in range(_READINGS):
            sensor = f"{number}-{choice.randrange(_SENSORS)}"
            lines.append(json.dumps({"sensor": sensor, "value": choice.randrange(100 + row)}))
        (place.input / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _FILES * _READINGS


def _pipeline(place: Place) -> Job:
    job = Job("emit if greater", parallelism=2, checkpoint_interval_ms=500)
    readings = job.read_json(place.input, schema="sensor STRING, value BIGINT")
    greater = readings.key_by("sensor").process(EmitIfGreater(), schema="sensor STRING, value BIGINT")
    greater.write_json(place.output / "greater")
    return job


def _check(place: Place) -> list[str]:
    wanted: Counter[tuple[str, int]] = Counter()
    last: dict[str, int] = {}
    for json_row in json_rows(place.input.iterdir()):
        if json_row["value"] > last.get(json_row["sensor"], -1):
            last[json_row["sensor"]] = json_row["value"]
            wanted[json_row["sensor"], json_row["value"]] += 1
    found: Counter[tuple[str, int]] = Counter()
    for json_row in json_rows((place.output / "greater").glob("part-*")):
        found[json_row["sensor"], json_row["value"]] += 1
    return compare(found, wanted, "number of times that")


EXAMPLE = Example("readings greater than the last, by a process function", _make_input, _pipeline, _check)
