"""Orders that were sent several times: the first of each id passes, whichever file it arrives in, and whenever."""

from __future__ import annotations

import json
from collections import Counter

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job

_FILES, _ORDERS = 4, 40_000


def _make_input(place: Place) -> int:
    choice = place.random()
    files: list[list[str]] = [[] for _ in range(_FILES)]
    for number in range(_ORDERS):
        line = json.dumps({"id": number, "cents": choice.randrange(10_000)})
        for _ in range(choice.choice((1, 2, 2, 3, 4))):
            choice.choice(files).append(line)
    for number, lines in enumerate(files):
        choice.shuffle(lines)
        (place.input / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sum(map(len, files))


def _pipeline(place: Place) -> Job:
    job = Job("deduplication", parallelism=2, checkpoint_interval_ms=500, full_snapshot_every=5)
    orders = job.read_json(place.input, schema="id BIGINT, cents BIGINT")
    orders.key_by("id").deduplicate(ttl="1 hour").write_json(place.output / "orders")
    return job


def _check(place: Place) -> list[str]:
    wanted: Counter[tuple[int, int]] = Counter()
    for json_row in json_rows(place.input.iterdir()):
        wanted[json_row["id"], json_row["cents"]] = 1
    found: Counter[tuple[int, int]] = Counter()
    for json_row in json_rows((place.output / "orders").glob("part-*")):
        found[json_row["id"], json_row["cents"]] += 1
    return compare(found, wanted, "number of orders")


EXAMPLE = Example("orders sent several times, each passed on once", _make_input, _pipeline, _check)
