"""Windows with a trigger on real Spark: early results build up or are pieces, the final ones are those of Spark SQL.

The input is the same in each test, but where batches end is not: so what is compared is what is promised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    EarlyFiringWindow,
    FilesystemBackend,
    RocksdbBackend,
    StateBackend,
    TriggeredWindow,
    Window,
)
from pyspark.sql import SparkSession

from tests.committed import rows_of

from .results import at, end_after_two_restarts, late_of, millis, widen
from .test_spark_processing_time import words, write_words
from .test_spark_windows import SCHEMA, clicks, write_clicks

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
Windows = dict[tuple[str, int], list[dict[str, Any]]]  # results by user and start
SIZE_MS = 20_000
BACKENDS = [
    pytest.param(StateBackend(FilesystemBackend(), full_every=3), id="incremental"),
    pytest.param(StateBackend(RocksdbBackend()), id="rocksdb"),
]


def by_spark(folder: Path, slide_ms: int = SIZE_MS) -> dict[tuple[str, int], tuple[int, int]]:
    """Count and sum of each user and window."""
    spark = SparkSession.active()
    spark.read.schema(SCHEMA).json(str(folder / "in")).createOrReplaceTempView("clicks_of_triggers")
    rows = spark.sql(
        "SELECT user, w.start AS s, count(*) AS n, sum(amount) AS total FROM (SELECT user, amount, "
        f"window(at, '{SIZE_MS} milliseconds', '{slide_ms} milliseconds') AS w FROM clicks_of_triggers) "
        "GROUP BY user, w"
    ).selectExpr("user", "unix_millis(s) AS s", "n", "total")
    return {(row.user, row.s): (row.n, row.total) for row in rows.collect()}


def results(folder: Path) -> Windows:
    found: Windows = defaultdict(list)
    for row in rows_of(folder / "out"):
        assert millis(row["window_end"]) - millis(row["window_start"]) == SIZE_MS
        found[row["user"], millis(row["window_start"])].append(row)
    return found


def finals(found: Windows) -> dict[tuple[str, int], tuple[int, int]]:
    chosen = {name: [row for row in rows if not row["is_early"]] for name, rows in found.items()}
    assert {len(rows) for rows in chosen.values()} == {1}, "one final result for each user and window"
    return {name: (rows[0]["n"], rows[0]["total"]) for name, rows in chosen.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize("slide_ms", [SIZE_MS, 10_000])
def test_results_are_exact_across_attempts(
    job: Job, tmp_path: Path, backend: StateBackend, purge: bool, slide_ms: int
) -> None:
    write_clicks(tmp_path / "in", rows=2000)
    kind: Any = TriggeredWindow(SIZE_MS, 0, 20, 0, purge)
    if slide_ms < SIZE_MS:
        kind = EarlyFiringWindow(SIZE_MS, slide_ms, 0, False, 20, 0, purge)
    run = job(replace(clicks(tmp_path, Window(kind, "at")), state_backend=backend))
    run.fix_batch_size("source", 20_000)
    end_after_two_restarts(run, "source", rounds=3)
    found, expected = results(tmp_path), by_spark(tmp_path, slide_ms)
    assert late_of(run) == 0
    early = [row for rows in found.values() for row in rows if row["is_early"]]
    assert len(early) > 50
    assert all(row["n"] >= 20 for row in early), "it fires when so many records have come"
    if purge:
        assert {
            name: (sum(row["n"] for row in rows), sum(row["total"] or 0 for row in rows))
            for name, rows in found.items()
        } == expected
        assert set(finals(found)) == set(expected)
    else:
        assert finals(found) == expected
        for rows in found.values():
            counts = sorted(row["n"] for row in rows if row["is_early"])
            assert all(later - before >= 20 for before, later in pairwise(counts))
            assert all(count <= finals({("", 0): rows})["", 0][0] for count in counts)
    run.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_pieces_by_the_clock_are_exact_over_a_restart_and_a_rescale(
    job: Job, tmp_path: Path, backend: StateBackend
) -> None:
    write_clicks(tmp_path / "in", rows=2000)
    window = Window(TriggeredWindow(SIZE_MS, 0, 0, 1000, True), "at")
    run = job(replace(clicks(tmp_path, window), state_backend=backend))
    run.fix_batch_size("source", 60_000)
    at(run, 100)
    run.batch("source", 0)
    run.batch("source", 1)
    at(run, 900)
    kept = run.checkpoint(1)
    assert not results(tmp_path), "the second is not over"
    at(run, 1000)
    run.checkpoint(2, commit=False)
    run.close()
    run.start(kept, 1)
    at(run, 1500)  # what is new was found in the snapshot
    at(run, 2000)
    kept = run.checkpoint(3)
    early = sum(map(len, results(tmp_path).values()))
    assert early > 20
    run.batch("source", 0)
    kept = run.checkpoint(4)
    widen(run, kept, 4)
    at(run, 2500)
    at(run, 3000)
    run.checkpoint(5)
    assert sum(map(len, results(tmp_path).values())) > early, "the new subtasks put out what was new in the old ones"
    run.to_end()
    run.checkpoint(6)
    found = results(tmp_path)
    assert {
        name: (sum(row["n"] for row in rows), sum(row["total"] or 0 for row in rows)) for name, rows in found.items()
    } == by_spark(tmp_path)
    assert set(finals(found)) == set(found)
    assert late_of(run) == 0
    run.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("purge", [False, True])
def test_windows_of_processing_time_fire_early_and_are_exact_over_a_restart_and_a_rescale(
    job: Job, tmp_path: Path, backend: StateBackend, purge: bool
) -> None:
    expected = write_words(tmp_path)
    run = job(words(tmp_path, EarlyFiringWindow(2000, 1000, 0, False, 20, 400, purge), backend))
    run.fix_batch_size("source", 16_000)
    at(run, 0)
    run.batch("source", 0)
    at(run, 400)
    kept = run.checkpoint(1)
    before = rows_of(tmp_path / "out")
    assert {row["is_early"] for row in before} == {True}
    run.batch("source", 1)
    at(run, 2500)
    run.checkpoint(2, commit=False)
    run.close()
    run.start(kept, 1)
    at(run, 4000)
    run.batch("source", 1)
    kept = run.checkpoint(3)
    widen(run, kept, 3)
    at(run, 4200)
    run.batch("source", 0)
    at(run, 4900)
    run.to_end()
    run.checkpoint(4)
    rows = rows_of(tmp_path / "out")
    final = [(row["word"], row["window_end"]) for row in rows if not row["is_early"]]
    assert len(final) == len(set(final)) == len({(row["word"], row["window_end"]) for row in rows})
    counted: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        if purge or not row["is_early"]:
            n, total = counted[row["word"]]
            counted[row["word"]] = (n + row["n"], total + (row["total"] or 0))
    assert counted == {word: (2 * n, 2 * total) for word, (n, total) in expected.items()}, "each is in two windows"
    assert len(rows) - len(final) > len(before)
    assert late_of(run) == 0
    run.close()
