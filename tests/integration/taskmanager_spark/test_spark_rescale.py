"""Restart at another parallelism on real Spark: 2 -> 3 -> 2 subtasks, every count exact, every commit once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import Edge, FileFormat, FileSink, JobGraph, SqlSink

from tests.committed import rows_of

from .graphs import HASH, WORDS, count_by, graph, text, vertex
from .results import rescale
from .test_spark_programs import write_words

pytestmark = pytest.mark.integration

Job = Callable[..., Any]


def _word_count(folder: Path, parallelism: int) -> JobGraph:
    sinks = (SqlSink(f"sqlite:///{folder}/db", "counts", ("word",)), FileSink(str(folder / "out"), FileFormat.PARQUET))
    return graph(
        vertex("source", text(folder / "in"), WORDS, parallelism=parallelism),
        vertex("count", count_by("word"), *sinks, parallelism=parallelism),
        edges=(Edge("source", "count", HASH, ("word",)),),
    )


def test_two_three_two_subtasks_count_exactly_and_commit_once(job: Job, tmp_path: Path) -> None:
    expected = write_words(tmp_path / "in")
    run = job(_word_count(tmp_path, 2))
    run.fix_batch_size("source", 50_000)
    for checkpoint_id, parallelism in ((1, 3), (2, 2)):
        for subtask in range(len(run.programs) // 2):
            run.batch("source", subtask)
        kept = run.checkpoint(checkpoint_id, commit=False)  # it is complete, and whoever comes next has to commit
        before = len(list((tmp_path / "out").glob("part-*")))
        rescale(run, _word_count(tmp_path, parallelism), kept, checkpoint_id)
        assert len(list((tmp_path / "out").glob("part-*"))) > before, "what was pending is committed at the start"
    run.to_end()
    run.checkpoint(3)
    with sqlite3.connect(tmp_path / "db") as database:
        assert dict(database.execute("SELECT word, n FROM counts").fetchall()) == dict(expected)
    highest: dict[str, int] = {}
    for row in rows_of(tmp_path / "out"):
        highest[row["word"]] = max(row["n"], highest.get(row["word"], 0))
    assert highest == dict(expected)
    out = {"source0": 0, "count0": 0}
    for program in run.programs.values():
        for counter in program.counters():
            if counter.operator_id in out:
                out[counter.operator_id] += (
                    counter.records_out if counter.operator_id == "source0" else counter.records_in
                )
    assert out == {"source0": sum(expected.values()) // 8, "count0": sum(expected.values())}
