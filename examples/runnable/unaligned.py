"""A job that lags: barriers overtake queued records, which are restored before anything new."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job
from lockgate.pipeline.stream import Stream

_FILES, _LINES = 4, 15_000
_PAD = "x" * 200
_ROW_S = 200e-6


def make_input(place: Place) -> int:
    """Files of JSON lines with unique ids; returns the number of lines."""
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


def slow_ids(job: Job, place: Place) -> Stream:
    """Adds the reading of the ids to a job, faster than they are processed."""
    read = job.read_json(place.input, schema="id STRING, pad STRING, n DOUBLE")
    return read.rebalance().transform(_slow)


def _pipeline(place: Place) -> Job:
    job = Job("unaligned", parallelism=2, checkpoint_interval_ms=500, checkpoint_mode="unaligned")
    slow_ids(job, place).write_json(place.output / "ids")
    return job


def wanted() -> dict[str, int]:
    """Every id of the input, exactly once."""
    return {f"{number}-{line}": 1 for number in range(_FILES) for line in range(_LINES)}


def check(place: Place) -> list[str]:
    """The ids that were written against those that were read."""
    found: Counter[str] = Counter()
    found.update(json_row["id"] for json_row in json_rows((place.output / "ids").glob("part-*")))
    return compare(found, wanted(), "number of times that")


EXAMPLE = Example("a lagging job, with unaligned checkpoints", make_input, _pipeline, check)
