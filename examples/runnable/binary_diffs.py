"""Counts visits of pages in one large value for each reader; snapshots store the bytes of it that have changed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

from examples.frame import Example, Place, Scene, Step, Wrong
from examples.frame.example import compare, json_rows
from lockgate import Job, ProcessFunction, ValueState

_FILES, _VISITS, _READERS, _PAGES = 4, 40_000, 40, 64_000
_PATIENCE_S, _LOOK_EVERY_S = 60.0, 0.1


class VisitsOfPages(ProcessFunction):
    """Tells of each visit the how-many-eth of its page it is: a byte for each page, 64 kB for each reader."""

    visits = ValueState("BINARY")

    def process(self, context: Any, row: dict[str, Any]) -> dict[str, Any]:
        del context
        visits = bytearray(self.visits.get(bytes(_PAGES)))
        visits[row["page"]] += 1
        self.visits.set(bytes(visits))
        return {**row, "visit": visits[row["page"]]}


def _make_input(place: Place) -> int:
    choice = place.random()
    for number in range(_FILES):
        visits = [
            {"reader": choice.randrange(_READERS), "page": int(choice.triangular(0, _PAGES, 0)) // 50 * 50}
            for _ in range(_VISITS)
        ]
        (place.input / f"{number}.json").write_text("\n".join(map(json.dumps, visits)) + "\n", encoding="utf-8")
    return _FILES * _VISITS


def _pipeline(place: Place) -> Job:
    job = Job(
        "binary diffs",
        parallelism=2,
        checkpoint_interval_ms=300,
        retained_checkpoints=5,
        full_snapshot_every=10,
        binary_diff=True,
    )
    visits = job.read_json(place.input, schema="reader BIGINT, page INT")
    visited = visits.key_by("reader").process(VisitsOfPages(), schema="reader BIGINT, page INT, visit INT")
    visited.write_json(place.output / "visits")
    return job


def _see_differences(scene: Scene) -> None:
    never, deadline = threading.Event(), time.monotonic() + _PATIENCE_S
    while True:
        for checkpoint in scene.client.checkpoints(scene.key):
            if checkpoint.diff_values:
                whole = checkpoint.written_bytes + checkpoint.diff_saved_bytes
                scene.say(
                    f"  checkpoint {checkpoint.checkpoint_id}: {checkpoint.diff_values} values as differences,"
                    f" {checkpoint.written_bytes:,} bytes written instead of {whole:,}"
                )
                return
        if time.monotonic() > deadline:
            raise Wrong("no checkpoint has stored a difference")
        never.wait(_LOOK_EVERY_S)


def _check(place: Place) -> list[str]:
    wanted: Counter[tuple[int, int, int]] = Counter()
    visits: Counter[tuple[int, int]] = Counter()
    for json_row in json_rows(place.input.iterdir()):
        visits[json_row["reader"], json_row["page"]] += 1
        wanted[json_row["reader"], json_row["page"], visits[json_row["reader"], json_row["page"]]] = 1
    found: Counter[tuple[int, int, int]] = Counter()
    for json_row in json_rows((place.output / "visits").glob("part-*")):
        found[json_row["reader"], json_row["page"], json_row["visit"]] += 1
    return compare(found, wanted, "number of times that")


EXAMPLE = Example(
    "64 kB of state for each key, of which snapshots store what has changed",
    _make_input,
    _pipeline,
    _check,
    steps=(Step(0.3, "a checkpoint stores differences", _see_differences),),
)
