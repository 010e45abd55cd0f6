"""Measurements summed in windows; some arrive far too late, and go to a separate folder instead of getting lost."""

from __future__ import annotations

import json
from collections import Counter

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job, count, sum_, tumbling

_FILES, _ROWS, _SENSORS = 4, 30_000, 100
_START_MS, _LENGTH_MS, _DISORDER_MS, _TOO_LATE_MS = 1_772_323_200_000, 120_000, 1_000, 30_000


def _make_input(place: Place) -> int:
    choice = place.random()
    for number in range(_FILES):
        lines = []
        for row in range(_ROWS):
            at = _START_MS + _LENGTH_MS * row // _ROWS - choice.randrange(_DISORDER_MS)
            if row > _ROWS // 2 and choice.random() < 0.001:
                at -= _TOO_LATE_MS
            lines.append(json.dumps({"at": at, "sensor": choice.randrange(_SENSORS), "value": choice.randrange(1000)}))
        (place.input / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _FILES * _ROWS


def _pipeline(place: Place) -> Job:
    job = Job("late records", parallelism=2, checkpoint_interval_ms=500)
    measured = job.read_json(place.input, schema="at BIGINT, sensor INT, value BIGINT")
    timed = measured.event_time("at", out_of_order="1 second")
    sums = timed.key_by("sensor").window(tumbling("5 seconds")).aggregate(n=count(), total=sum_("value"))
    columns = ("sensor", "unix_millis(window_start) AS start_ms", "n", "total")
    sums.select(*columns).write_json(place.output / "results")
    sums.late().select(*columns).write_json(place.output / "late")
    return job


def _check(place: Place) -> list[str]:
    wanted: dict[tuple[int, int], tuple[int, int]] = {}
    for json_row in json_rows(place.input.iterdir()):
        name = (json_row["sensor"], json_row["at"] - json_row["at"] % 5000)
        rows, total = wanted.get(name, (0, 0))
        wanted[name] = (rows + 1, total + json_row["value"])
    found: dict[tuple[int, int], tuple[int, int]] = {}
    lines: Counter[str] = Counter()
    for folder in ("results", "late"):
        for json_row in json_rows((place.output / folder).glob("part-*")):
            name = (json_row["sensor"], json_row["start_ms"])
            rows, total = found.get(name, (0, 0))
            found[name] = (rows + json_row["n"], total + json_row["total"])
            lines[folder] += 1
    problems = [] if lines["late"] else ["no record arrived too late"]
    problems += [] if lines["results"] <= len(wanted) else ["a window has fired more than once"]
    return problems + compare(found, wanted, "results and late records together of")


EXAMPLE = Example("records too late for their window, in a side output", _make_input, _pipeline, _check)
