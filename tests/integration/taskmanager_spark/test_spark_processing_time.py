"""Windows of processing time on real Spark: exact over restarts and rescales, ended by the clock and by the input."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    AggregateFunction,
    Edge,
    FileFormat,
    FileSink,
    FileSource,
    FilesystemBackend,
    JobGraph,
    KeyedAggregate,
    RocksdbBackend,
    SessionWindow,
    SlidingWindow,
    StateBackend,
    TumblingWindow,
    Window,
    WindowProcess,
)
from pyspark import cloudpickle

from tests.committed import rows_of

from .graphs import HASH, aggregate, graph, sql, vertex
from .results import NOON, at, late_of, millis, widen

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
BACKENDS = [
    pytest.param(StateBackend(FilesystemBackend()), id="filesystem"),
    pytest.param(StateBackend(FilesystemBackend(), full_every=5), id="incremental"),
    pytest.param(StateBackend(RocksdbBackend()), id="rocksdb"),
]


def words(folder: Path, window: Any, backend: StateBackend | None = None) -> JobGraph:
    plain = aggregate(("word",), n=(AggregateFunction.COUNT, ""), total=(AggregateFunction.SUM, "weight"))
    kind = KeyedAggregate(plain.keys, plain.aggregates, Window(window, processing_time=True))
    source = FileSource(path=str(folder / "in"), format=FileFormat.JSON_LINES, schema="word STRING, weight BIGINT")
    made = graph(
        vertex("source", source, sql("SELECT * FROM input"), parallelism=2),
        vertex("windows", kind, FileSink(str(folder / "out"), FileFormat.PARQUET), parallelism=2),
        edges=(Edge("source", "windows", HASH, ("word",)),),
    )
    return replace(made, state_backend=backend)


def added_up(key: str, window: Any, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of the aggregates, by a function."""
    total = sum(record["weight"] for record in records)
    bounds = {"window_start": window.start, "window_end": window.end}
    return {"word": key, **bounds, "n": len(records), "total": total}


def by_function(made: JobGraph) -> JobGraph:
    """The same job with a function instead of aggregates."""
    source, windows = made.vertices
    kind = windows.operators[0].kind
    assert isinstance(kind, KeyedAggregate)
    schema = "word STRING, window_start TIMESTAMP, window_end TIMESTAMP, n BIGINT, total BIGINT"
    process = WindowProcess(kind.keys, kind.window, cloudpickle.dumps(added_up), "added_up", schema)
    operators = (replace(windows.operators[0], kind=process), *windows.operators[1:])
    return replace(made, vertices=(source, replace(windows, operators=operators)))


def write_words(folder: Path, rows: int = 3000) -> dict[str, tuple[int, int]]:
    """Two files. Count and sum of each word."""
    (folder / "in").mkdir()
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for number in range(2):
        lines = []
        for row in range(rows):
            word, weight = f"w{row * 7919 % 61}", row % 100
            counts[word] += 1
            totals[word] += weight
            lines.append(json.dumps({"word": word, "weight": weight}))
        (folder / "in" / f"{number}.json").write_text("\n".join(lines) + "\n")
    return {word: (counts[word], totals[word]) for word in counts}


def wakes_at(run: Any) -> int | None:
    found = [program.wakes_at() for key, program in run.programs.items() if key[0] == "windows"]
    return min((wakes - NOON for wakes in found if wakes is not None), default=None)


def written(folder: Path) -> dict[tuple[str, int, int], tuple[int, int]]:
    found = {}
    for row in rows_of(folder / "out"):
        name = (row["word"], millis(row["window_start"]) - NOON, millis(row["window_end"]) - NOON)
        assert name not in found, "a window ends once"
        found[name] = (row["n"], row["total"])
    return found


def sums(folder: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for (word, _, _), (n, total) in written(folder).items():
        before = found.get(word, (0, 0))
        found[word] = (before[0] + n, before[1] + total)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("window", "windows_of_a_record"),
    [(TumblingWindow(1000), 1), (SlidingWindow(2000, 500), 4), (SessionWindow(700), 1)],
)
def test_sums_over_all_windows_are_exact_over_a_restart_and_a_rescale(
    job: Job, tmp_path: Path, backend: StateBackend, window: Any, windows_of_a_record: int
) -> None:
    _are_exact(job, tmp_path, words(tmp_path, window, backend), windows_of_a_record)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("window", "windows_of_a_record"), [(TumblingWindow(1000), 1), (SlidingWindow(2000, 500), 4)])
def test_functions_get_each_record_in_its_windows_over_a_restart_and_a_rescale(
    job: Job, tmp_path: Path, backend: StateBackend, window: Any, windows_of_a_record: int
) -> None:
    _are_exact(job, tmp_path, by_function(words(tmp_path, window, backend)), windows_of_a_record)


def _are_exact(job: Job, tmp_path: Path, made: JobGraph, windows_of_a_record: int) -> None:
    expected = {
        word: (windows_of_a_record * n, windows_of_a_record * total)
        for word, (n, total) in write_words(tmp_path).items()
    }
    run = job(made)
    run.fix_batch_size("source", 16_000)
    at(run, 0)
    run.batch("source", 0)
    at(run, 400)
    run.batch("source", 1)
    kept = run.checkpoint(1)
    assert not written(tmp_path)
    at(run, 5000)
    run.batch("source", 0)  # is read again after the restart, into a later window
    run.checkpoint(2, commit=False)
    run.close()
    run.start(kept, 1)
    at(run, 6000)
    run.batch("source", 0)
    at(run, 6100)
    run.batch("source", 1)
    kept = run.checkpoint(3)
    widen(run, kept, 3)
    at(run, 6200)
    run.batch("source", 0)
    at(run, 9000)
    run.to_end()
    run.checkpoint(4)
    assert sums(tmp_path) == expected
    assert late_of(run) == 0
    run.close()


def test_windows_end_over_a_silent_source(job: Job, tmp_path: Path) -> None:
    write_words(tmp_path)
    run = job(words(tmp_path, TumblingWindow(1000)))
    at(run, 1)
    assert wakes_at(run) is None
    run.batch("source", 0)
    assert wakes_at(run) == 1000
    at(run, 999)
    run.checkpoint(1)
    assert not written(tmp_path)
    at(run, 1000)
    run.checkpoint(2)
    assert {(start, end) for _, start, end in written(tmp_path)} == {(0, 1000)}
    assert wakes_at(run) is None
    run.close()


def test_the_end_of_the_input_ends_every_window(job: Job, tmp_path: Path) -> None:
    expected = write_words(tmp_path, rows=100)
    run = job(words(tmp_path, TumblingWindow(86_400_000)))
    at(run, 1)
    run.to_end()
    run.checkpoint(1)
    assert sums(tmp_path) == expected
    run.close()
