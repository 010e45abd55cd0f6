"""The streaming program of the Flink paper: words from a socket, in windows of 5 s every 1 s of processing time.

A socket sends nothing twice, so the lines that a dying task manager had read since the last checkpoint are lost. Each
line has a word of its own, by which the check knows which lines counted: each in all of its five windows, or in none.
The death of a leader loses nothing, because the job is adopted by the next one.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from examples.frame.feed import Feed
from lockgate import Job, count, sliding

_LINES, _WINDOWS = 3_000, 5
_WORDS = ("stream", "batch", "state", "window", "barrier", "snapshot")


_feeds = [Feed()]  # the last one belongs to this run


@contextmanager
def _feeding() -> Iterator[None]:
    with Feed() as feed:
        _feeds.append(feed)
        yield


def word_count(name: str, port: int, output: Path) -> Job:
    """The job, which ends with its connection."""
    job = Job(name, parallelism=2, checkpoint_interval_ms=500)
    lines = job.read_socket("127.0.0.1", port)
    words = lines.flat_map(lambda line: line["value"].split(), schema="word STRING")
    counts = words.key_by("word").window(sliding("5 seconds", "1 second"), time="processing").aggregate(n=count())
    counts.filter("word NOT LIKE '#%'").print()
    counts.select("word", "unix_millis(window_start) AS start_ms", "n").write_json(output)
    return job


def make_lines(choice: random.Random) -> Iterator[str]:
    """Lines of a few words, without an end; the last word of each is in no other line."""
    return (" ".join([*choice.choices(_WORDS, k=3), f"#{number}"]) for number in itertools.count())


def problems_of(lines: list[str], output: Path, connections: int) -> list[str]:
    """What is wrong with the results. connections: how many lines were sent over; with one, none may be missing."""
    found: Counter[str] = Counter()
    windows: Counter[tuple[str, int]] = Counter()
    for row in json_rows(output.glob("part-*")):
        found[row["word"]] += row["n"]
        windows[row["word"], row["start_ms"]] += 1
    wanted: Counter[str] = Counter()
    missing = 0
    for line in lines:
        words = line.split(" ")
        if words[-1] in found:
            wanted.update({word: _WINDOWS * words.count(word) for word in words})
        else:
            missing += 1
    problems = compare(dict(found), dict(wanted), "sum over all windows of")
    if max(windows.values(), default=1) > 1:
        problems.append("a window was emitted twice")
    if not found or (missing and connections < 2):
        problems.append(f"{missing} of {len(lines)} lines are missing, over {connections} connection(s)")
    return problems


def _make_input(place: Place) -> int:
    lines = list(itertools.islice(make_lines(place.random()), _LINES))
    (place.input / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    _feeds[-1].send(lines)
    return len(lines)


def _check(place: Place) -> list[str]:
    lines = (place.input / "lines.txt").read_text(encoding="utf-8").split("\n")
    return problems_of(lines, place.output / "counts", _feeds[-1].connections)


EXAMPLE = Example(
    "words of a socket in windows of processing time, 5 s every 1 s",
    _make_input,
    lambda place: word_count("window word count", _feeds[-1].port, place.output / "counts"),
    _check,
    beside=_feeding,
)
