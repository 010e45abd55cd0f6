"""Counts by key in RocksDB, for state that is larger than memory; a snapshot stores the tables that are new."""

from __future__ import annotations

import sqlite3
from collections import Counter

from examples.frame import Example, Place
from examples.frame.example import compare
from lockgate import Job, count

_FILES, _LINES, _KEYS = 4, 40_000, 120_000


def _make_input(place: Place) -> int:
    choice = place.random()
    for number in range(_FILES):
        lines = (f"key{choice.randrange(_KEYS):06d}" for _ in range(_LINES))
        (place.input / f"{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _FILES * _LINES


def _pipeline(place: Place) -> Job:
    job = Job("rocksdb state", parallelism=2, checkpoint_interval_ms=500, state="rocksdb")
    counts = job.read_text(place.input).key_by("value").aggregate(n=count())
    counts.write_sql(f"sqlite:///{place.output}/keys.db", "counts", key="value")
    return job


def _check(place: Place) -> list[str]:
    wanted: Counter[str] = Counter()
    for path in place.input.iterdir():
        wanted.update(path.read_text(encoding="utf-8").split())
    with sqlite3.connect(place.output / "keys.db") as database:
        found = dict(database.execute("SELECT value, n FROM counts").fetchall())
    return compare(found, wanted, "count of")


EXAMPLE = Example("counts of many keys, kept in RocksDB on the task managers' disks", _make_input, _pipeline, _check)
