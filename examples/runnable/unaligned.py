"""A job that is behind: barriers overtake what is queued, and what they overtook is restored before anything new."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job

_FILES, _LINES = 4, 15_000
_PAD = "x" * 200
_ROW_S = 200e-6


def _make_input(place: Place) -> int:
    choice = place.random()
    for number in range(_FILES):
        lines = (json.dumps({"id": f"{number}-{line}", "pad": _PAD, "n": choice.random()}) for line in range(_LINES))
        (place.input / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _FILES * _LINES


def _slow(df: Any) -> Any:
    row_s = _ROW_S

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(batch.num_rows * row_s)
            yield batch.select(["id"])

    return df.mapInArrow(wait, "id STRING")


def _pipeline(place: Place) -> Job:
    job = Job("unaligned", parallelism=2, checkpoint_interval_ms=500, checkpoint_mode="unaligned")
    read = job.read_json(place.input, schema="id STRING, pad STRING, n DOUBLE")
    read.rebalance().transform(_slow).write_json(place.output / "ids")
    return job


def _check(place: Place) -> list[str]:
    found: Counter[str] = Counter()
    found.update(one["id"] for one in json_rows((place.output / "ids").glob("part-*")))
    wanted = {f"{number}-{line}": 1 for number in range(_FILES) for line in range(_LINES)}
    return compare(found, wanted, "number of times that")


EXAMPLE = Example("a job that is behind, with unaligned checkpoints", _make_input, _pipeline, _check)
