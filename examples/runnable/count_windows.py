"""Every fifty clicks of a user, by a function that sees all of them. Which are together depends on their arrival."""

from __future__ import annotations

from collections import Counter
from typing import Any

from examples.frame import Example, Place
from examples.frame.clicks import write_clicks
from examples.frame.example import json_rows
from lockgate import Job

_SIZE = 50


def _make_input(place: Place) -> int:
    return write_clicks(place, clicks=30_000, users=500, length_ms=600_000, disorder_ms=3_000)


def _contents(key: int, window: Any, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {"user": key, "last": window.end, "clicks": [f"{record['at']} {record['page']}" for record in records]}


def _pipeline(place: Place) -> Job:
    job = Job("count windows", parallelism=2, checkpoint_interval_ms=500)
    clicks = job.read_json(place.input, schema="at BIGINT, user INT, page INT")
    windows = clicks.key_by("user").count_window(_SIZE)
    found = windows.process(_contents, schema="user INT, last BIGINT, clicks ARRAY<STRING>")
    found.write_json(place.output / "fifties")
    return job


def _check(place: Place) -> list[str]:
    given: dict[int, Counter[str]] = {}
    for row in json_rows(place.input.iterdir()):
        given.setdefault(row["user"], Counter())[f"{row['at']} {row['page']}"] += 1
    wanted = {(user, last) for user, clicks in given.items() for last in range(_SIZE, clicks.total() + 1, _SIZE)}
    found = list(json_rows((place.output / "fifties").glob("part-*")))
    windows = Counter((row["user"], row["last"]) for row in found)
    problems = [f"window {window} came {count} times" for window, count in windows.items() if count > 1]
    problems += [f"window {window} is missing or too many" for window in wanted ^ windows.keys()]
    problems += [f"{row['user']}: a window of {len(row['clicks'])}" for row in found if len(row["clicks"]) != _SIZE]
    for row in found:
        given[row["user"]].subtract(row["clicks"])
    return problems + [f"{user}: a click is in two windows" for user, rest in given.items() if min(rest.values()) < 0]


EXAMPLE = Example("a function of every 50 clicks of a user", _make_input, _pipeline, _check)
