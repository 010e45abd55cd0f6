"""A job is stopped with a savepoint, and a changed pipeline continues from it: equal ids keep their state."""

from __future__ import annotations

import sqlite3
from collections import Counter

from examples.frame import Example, Place, Scene, Step, Wrong
from examples.frame.example import compare
from examples.runnable import word_count
from lockgate import Job, JobHandle, count
from lockgate.client import ClientError
from lockgate.pipeline.stream import Stream

_PATIENCE_S = 120.0


def _words(job: Job, place: Place, query: str) -> Stream:
    """Counts the words: what both versions do, under the same ids. query: how lines become words."""
    words = job.read_text(place.input).uid("lines").sql(query)
    counts = words.key_by("word").aggregate(n=count()).uid("counts")
    _write(counts, place, "counts", "word")
    return words


def _write(rows: Stream, place: Place, table: str, key: str) -> None:
    rows.write_sql(f"sqlite:///{place.output}/words.db", table, key=key).uid(f"table-{table}")


def _pipeline(place: Place) -> Job:
    job = Job("changed code", parallelism=2, checkpoint_interval_ms=500)
    words = _words(job, place, "SELECT explode(split(value, ' ')) AS word FROM input")
    digits = words.select("right(word, 1) AS digit").key_by("digit").aggregate(n=count()).uid("last-digits")
    _write(digits, place, "last_digits", "digit")
    return job


def _changed(place: Place) -> Job:
    """Other SQL, an operator more that has no state, one with state that is gone, and a new one."""
    job = Job("changed code", parallelism=2, checkpoint_interval_ms=500)
    words = _words(job, place, "SELECT explode(regexp_extract_all(lower(value), '([a-z]+[0-9]+)')) AS word FROM input")
    digits = words.filter("word IS NOT NULL").select("substr(word, 5, 1) AS digit")
    _write(digits.key_by("digit").aggregate(n=count()).uid("first-digits"), place, "first_digits", "digit")
    return job


def _replace(scene: Scene) -> str:
    savepoint = scene.client.stop(scene.key)
    JobHandle(scene.client, scene.key).wait(_PATIENCE_S)
    graph, successor = _changed(scene.place).graph(), f"{scene.key}-changed"
    try:
        scene.client.submit(successor, graph, savepoint.pointer)
    except ClientError as error:
        if "last-digits" not in str(error):
            raise
        scene.say(f"  refused: {error}")
    else:
        raise Wrong("the changed job was taken although the savepoint has state that none of its operators takes")
    scene.client.submit(successor, graph, savepoint.pointer, allow_unmatched_state=True)
    scene.say("  allowed: the state of 'last-digits' is dropped")
    return successor


def _check(place: Place) -> list[str]:
    """Words are counted over both jobs. A word is in one of the other tables: which one says which job has read it."""
    words = word_count.counted(place)
    with sqlite3.connect(place.output / "words.db") as database:
        tables = {
            table: dict(database.execute(f"SELECT * FROM {table}").fetchall())
            for table in ("counts", "last_digits", "first_digits")
        }
    before, after = sum(tables["last_digits"].values()), sum(tables["first_digits"].values())
    problems = compare(tables["counts"], words, "count of")
    if not before or not after:
        problems.append(f"{before} words by the first job and {after} by the second one: one of them has done nothing")
    if before + after != words.total():
        problems.append(f"{before} words by the first job and {after} by the second one, {words.total()} in the input")
    return (
        problems
        + _more_than_there_are(tables["last_digits"], words, -1)
        + _more_than_there_are(tables["first_digits"], words, 4)
    )


def _more_than_there_are(found: dict[str, int], words: Counter[str], position: int) -> list[str]:
    there: Counter[str] = Counter()
    for word, number in words.items():
        there[word[position]] += number
    return [f"{n} words with {digit!r}, the input has {there[digit]}" for digit, n in found.items() if n > there[digit]]


EXAMPLE = Example(
    "stopped with a savepoint, continued by a changed pipeline",
    word_count.make_input,
    _pipeline,
    _check,
    steps=(Step(0.35, "stop with a savepoint, and submit the changed pipeline", _replace),),
)
