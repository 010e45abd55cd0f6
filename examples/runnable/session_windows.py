"""Visits of users: clicks no more than 10 seconds apart are one visit, however out of order they come."""

from __future__ import annotations

from examples.frame import Example, Place
from examples.frame.clicks import write_clicks
from examples.frame.example import compare, json_rows
from lockgate import Job, count, max_, session

_GAP_MS = 10_000


def _make_input(place: Place) -> int:
    return write_clicks(place, clicks=30_000, users=2_000, length_ms=600_000, disorder_ms=3_000)


def _pipeline(place: Place) -> Job:
    job = Job("session windows", parallelism=2, checkpoint_interval_ms=500)
    clicks = job.read_json(place.input, schema="at BIGINT, user INT, page INT").event_time(
        "at", out_of_order="3 seconds"
    )
    visits = clicks.key_by("user").window(session("10 seconds")).aggregate(clicks=count(), last_page=max_("page"))
    columns = ("unix_millis(window_start) AS start_ms", "unix_millis(window_end) AS end_ms")
    visits.select("user", *columns, "clicks", "last_page").write_json(place.output / "visits")
    return job


def _check(place: Place) -> list[str]:
    clicks: dict[int, list[tuple[int, int]]] = {}
    for json_row in json_rows(place.input.iterdir()):
        clicks.setdefault(json_row["user"], []).append((json_row["at"], json_row["page"]))
    wanted: dict[tuple[int, int], tuple[int, int, int]] = {}
    for user, made in clicks.items():
        start = last = None
        for at, page in sorted(made):
            if start is None or last is None or at > last + _GAP_MS:
                start = at
            last = at
            _, number, highest = wanted.get((user, start), (0, 0, 0))
            wanted[user, start] = (at + _GAP_MS, number + 1, max(highest, page))
    found: dict[tuple[int, int], tuple[int, int, int]] = {}
    rows = 0
    for json_row in json_rows((place.output / "visits").glob("part-*")):
        found[json_row["user"], json_row["start_ms"]] = (json_row["end_ms"], json_row["clicks"], json_row["last_page"])
        rows += 1
    return ([] if rows == len(found) else ["a visit is duplicated"]) + compare(found, wanted, "visit")


EXAMPLE = Example("visits as session windows that grow and join, 10 s gap", _make_input, _pipeline, _check)
