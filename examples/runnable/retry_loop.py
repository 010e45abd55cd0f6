"""Calls that are tried again until they are answered, in a loop; every try is counted once, whatever is killed."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job, count

_FILES, _CALLS, _HOSTS = 4, 30_000, 200
_MOST = 12  # tries, then a call is given up


def _make_input(place: Place) -> int:
    choice = place.random()
    for number in range(_FILES):
        lines = []
        for row in range(_CALLS):
            host = f"host{choice.randrange(_HOSTS):03d}"
            needs = min(1 + int(choice.expovariate(0.4)), 20)
            lines.append(json.dumps({"id": number * _CALLS + row, "host": host, "needs": needs}))
        (place.input / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _FILES * _CALLS


def _pipeline(place: Place) -> Job:
    job = Job("retry loop", parallelism=2, checkpoint_interval_ms=500)
    calls = job.read_json(place.input, schema="id BIGINT, host STRING, needs INT").select("*", "0 AS tries")
    loop = calls.loop()
    tried = loop.select("id", "host", "needs", "tries + 1 AS tries")
    loop.close_with(tried.filter(f"tries < needs AND tries < {_MOST}").rebalance())
    ended = tried.filter(f"tries >= needs OR tries >= {_MOST}")
    ended.select("id", "tries", "tries >= needs AS answered").write_json(place.output / "calls")
    load = tried.key_by("host").aggregate(tries=count())
    load.write_sql(f"sqlite:///{place.output}/load.db", "load", key="host")
    return job


def _check(place: Place) -> list[str]:
    calls: dict[int, tuple[int, bool]] = {}
    load: Counter[str] = Counter()
    for json_row in json_rows(place.input.iterdir()):
        tries = min(json_row["needs"], _MOST)
        calls[json_row["id"]] = (tries, tries == json_row["needs"])
        load[json_row["host"]] += tries
    rows = list(json_rows((place.output / "calls").glob("part-*")))
    found = {row["id"]: (row["tries"], row["answered"]) for row in rows}
    problems = [] if len(rows) == len(found) else [f"{len(rows) - len(found)} calls have ended twice"]
    with sqlite3.connect(place.output / "load.db") as database:
        tried = dict(database.execute("SELECT host, tries FROM load").fetchall())
    return problems + compare(found, calls, "end of call") + compare(tried, load, "number of tries at")


EXAMPLE = Example("a loop in which calls are tried again, every try counted once", _make_input, _pipeline, _check)
