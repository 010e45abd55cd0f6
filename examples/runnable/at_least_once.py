"""No channel waits for a barrier: nothing is lost, and records that followed one may count twice after a failure."""

from __future__ import annotations

import sqlite3

from examples.frame import Example, Place
from examples.frame.example import compare
from examples.runnable import unaligned
from lockgate import Job, count

_MOST = 3  # once, and again at each restart; one kill is one restart, seldom two


def _pipeline(place: Place) -> Job:
    job = Job("at least once", parallelism=2, checkpoint_interval_ms=300, checkpoint_mode="at_least_once")
    times = unaligned.slow_ids(job, place).key_by("id").aggregate(n=count())
    times.write_sql(f"sqlite:///{place.output}/ids.db", "ids", key="id")
    return job


def _times(place: Place) -> dict[str, int]:
    with sqlite3.connect(place.output / "ids.db") as database:
        return dict(database.execute("SELECT id, n FROM ids").fetchall())


def _check(place: Place) -> list[str]:
    times = _times(place)
    too_often = [f"{name!r} counts {n} times" for name, n in times.items() if n > _MOST]
    return too_often + compare(dict.fromkeys(times, True), dict.fromkeys(unaligned.wanted(), True), "presence of")


def _summary(place: Place) -> str:
    again = sum(n - 1 for n in _times(place).values())
    return f"no id is missing; {again:,} counts are duplicates"


EXAMPLE = Example(
    "no channel waits for a barrier: nothing is lost, some may count twice",
    unaligned.make_input,
    _pipeline,
    _check,
    summary=_summary,
)
