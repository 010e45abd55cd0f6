"""Words found, filtered and scored by Python functions over records; an object opens and closes with its subtask."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job

_FILES, _LINES, _WORDS = 4, 20_000, 2_000
_WORD = r"[a-z]+\d+"


class Scored:
    """Adds the score of a word from a table, which is loaded once for each subtask and attempt."""

    def __init__(self, table: Path, notes: Path) -> None:
        self.table, self.notes = table, notes

    def open(self, context: Any) -> None:
        """Loads the table."""
        self.scores: dict[str, int] = json.loads(self.table.read_text(encoding="utf-8"))
        with (self.notes / f"opened-{context.attempt}-{context.subtask}").open("a", encoding="utf-8") as file:
            file.write("once\n")

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        return {"word": record["word"], "score": self.scores[record["word"]]}

    def close(self) -> None:
        """Forgets it."""
        self.scores.clear()


def _make_input(place: Place) -> int:
    choice = place.random()
    words = [f"word{number}" for number in range(_WORDS)]
    for number in range(_FILES):
        lines = ("! ".join(choice.choices(words, k=4)) for _ in range(_LINES))
        (place.input / f"{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    scores = {word: choice.randrange(1_000) for word in words}
    (place.output / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
    return _FILES * _LINES


def _words(record: dict[str, Any]) -> Iterator[str]:
    for found in re.finditer(_WORD, record["value"]):
        yield found[0]


def _pipeline(place: Place) -> Job:
    job = Job("record functions", parallelism=2, checkpoint_interval_ms=500)
    words = job.read_text(place.input).flat_map(_words, schema="word STRING")
    odd = words.filter(lambda record: int(record["word"][4:]) % 2 == 1)
    scored = odd.map(Scored(place.output / "scores.json", place.output), schema="word STRING, score INT")
    scored.write_json(place.output / "scored")
    return job


def _check(place: Place) -> list[str]:
    scores = json.loads((place.output / "scores.json").read_text(encoding="utf-8"))
    wanted: Counter[tuple[str, int]] = Counter()
    for path in place.input.iterdir():
        for word in re.findall(_WORD, path.read_text(encoding="utf-8")):
            if int(word[4:]) % 2 == 1:
                wanted[word, scores[word]] += 1
    found: Counter[tuple[str, int]] = Counter()
    for json_row in json_rows((place.output / "scored").glob("part-*")):
        found[json_row["word"], json_row["score"]] += 1
    opened = [path for path in place.output.glob("opened-*") if path.read_text(encoding="utf-8") != "once\n"]
    return compare(found, wanted, "number of") + [f"{path.name}: more than once" for path in opened]


EXAMPLE = Example("words found and scored by Python functions over records", _make_input, _pipeline, _check)
