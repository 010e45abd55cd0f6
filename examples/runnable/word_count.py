"""Counts the words of text files into an SQLite table."""

from __future__ import annotations

import sqlite3
from collections import Counter

from examples.frame import Example, Place
from examples.frame.example import compare
from lockgate import Job, count

_FILES, _LINES, _WORDS = 4, 40_000, 5_000


def make_input(place: Place) -> int:
    """Four files of words that a seed has drawn; returns the number of lines."""
    choice = place.random()
    words = [f"word{number:04d}" for number in range(_WORDS)]
    for number in range(_FILES):
        lines = (" ".join(choice.choices(words, k=4)) for _ in range(_LINES))
        (place.input / f"{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _FILES * _LINES


def count_words(job: Job, place: Place) -> Job:
    """Adds the pipeline to a job."""
    words = job.read_text(place.input).sql("SELECT explode(split(value, ' ')) AS word FROM input")
    counts = words.key_by("word").aggregate(n=count())
    counts.write_sql(f"sqlite:///{place.output}/words.db", "counts", key="word")
    return job


def counted(place: Place) -> Counter[str]:
    """Every word of the input with its count, by plain Python."""
    found: Counter[str] = Counter()
    for path in place.input.iterdir():
        found.update(path.read_text(encoding="utf-8").split())
    return found


def check(place: Place) -> list[str]:
    """The table against the text."""
    with sqlite3.connect(place.output / "words.db") as database:
        found = dict(database.execute("SELECT word, n FROM counts").fetchall())
    return compare(found, counted(place), "count of")


def _pipeline(place: Place) -> Job:
    return count_words(Job("word count", parallelism=2, checkpoint_interval_ms=500), place)


EXAMPLE = Example("words of text files counted exactly once", make_input, _pipeline, check)
