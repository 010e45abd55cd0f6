"""Clicks per user in windows of 5 seconds, one beginning every second; the clicks come out of order."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

from examples.frame import Example, Place
from examples.frame.clicks import write_clicks
from examples.frame.example import compare, json_rows
from lockgate import Job, count, sliding


def _make_input(place: Place) -> int:
    return write_clicks(place, clicks=30_000, users=200, length_ms=60_000, disorder_ms=2_000)


def _pipeline(place: Place) -> Job:
    job = Job("sliding windows", parallelism=2, checkpoint_interval_ms=500)
    clicks = job.read_json(place.input, schema="at BIGINT, user INT").event_time("at", out_of_order="2 seconds")
    counts = clicks.key_by("user").window(sliding("5 seconds", "1 second")).aggregate(n=count())
    rows = counts.select("user", "unix_millis(window_start) AS start_ms", "n")
    rows.write_sql(f"sqlite:///{place.output}/clicks.db", "clicks", key=["user", "start_ms"])
    return job


def _clicks(folder: Path) -> list[tuple[int, int]]:
    return [(json_row["user"], json_row["at"]) for json_row in json_rows(folder.iterdir())]


def _check(place: Place) -> list[str]:
    wanted: Counter[tuple[int, int]] = Counter()
    for user, at in _clicks(place.input):
        for start in range(at - at % 1000, at - 5000, -1000):
            wanted[user, start] += 1
    with sqlite3.connect(place.output / "clicks.db") as database:
        rows = database.execute("SELECT user, start_ms, n FROM clicks").fetchall()
    return compare({(user, start): n for user, start, n in rows}, wanted, "count of")


EXAMPLE = Example("counts in sliding windows of event time, 5 s every 1 s", _make_input, _pipeline, _check)
