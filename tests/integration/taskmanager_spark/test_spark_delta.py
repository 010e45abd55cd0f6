"""Delta tables behind chains on real Spark: exact across attempts, another parallelism and another run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_proto.messages import CheckpointMetadata, DeltaSink, JobGraph, SubtaskState
from lockgate_taskmanager.task.program import UserError

from .graphs import WORDS, graph, sql, text, vertex
from .test_spark_programs import write_words

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
TYPED = sql("SELECT word, length(word) AS n, TIMESTAMP '2026-03-14 15:09:26' AS at, array(word) AS one FROM input")


def _words(folder: Path, parallelism: int) -> JobGraph:
    sink = DeltaSink(str(folder / "out"))
    return graph(vertex("all", text(folder / "in"), WORDS, TYPED, sink, parallelism=parallelism))


def _found(folder: Path) -> Counter[str]:
    if not DeltaTable.is_deltatable(str(folder / "out")):
        return Counter()
    return Counter(DeltaTable(folder / "out").to_pyarrow_table().column("word").to_pylist())


def _restart(run: Any, made: JobGraph, kept: Mapping[tuple[str, int], SubtaskState]) -> None:
    """The next attempt, from a snapshot of the one that has ended."""
    snapshot = CheckpointMetadata(
        format_version=1, vertices=vertex_shapes(normalize(run.graph)), subtasks=tuple(kept.values())
    )
    run.close()
    run.programs.clear()
    run.graph = made
    run.start(restore=redistribute(normalize(made), snapshot))


def test_words_are_appended_exactly_at_two_three_and_two_subtasks(job: Job, tmp_path: Path) -> None:
    expected = write_words(tmp_path / "in")
    run = job(_words(tmp_path, 2))
    run.fix_batch_size("all", 20_000)
    for checkpoint_id, parallelism in ((1, 3), (3, 2)):
        for subtask in range(len(run.programs)):
            run.batch("all", subtask)
        kept = run.checkpoint(checkpoint_id, commit=False)  # it is complete, and whoever comes next has to commit
        for subtask in range(len(run.programs)):
            run.batch("all", subtask)
        run.checkpoint(checkpoint_id + 1, commit=False)  # never complete
        before = _found(tmp_path).total()
        _restart(run, _words(tmp_path, parallelism), kept)
        run.fix_batch_size("all", 20_000)
        assert _found(tmp_path).total() > before, "what was pending is committed at the start"
    run.to_end()
    run.checkpoint(5)
    assert _found(tmp_path) == expected
    run.close()
    assert not list((tmp_path / "out").glob("_staging/*/*")), "nothing is left of the attempts that died"
    table = DeltaTable(tmp_path / "out").to_pyarrow_table()
    row = table.slice(0, 1).to_pylist()[0]
    assert (row["n"], row["one"], str(row["at"])) == (len(row["word"]), [row["word"]], "2026-03-14 15:09:26+00:00")


def test_a_table_that_does_not_fit_the_query_is_reported_before_anything_is_read(job: Job, tmp_path: Path) -> None:
    write_words(tmp_path / "in", files=1)
    DeltaTable.create(tmp_path / "out", Schema([Field("word", "string"), Field("n", "string")]))
    with pytest.raises(UserError, match=r"operator 'all3': the Delta table .* has column 'n' as string, but the rows"):
        job(_words(tmp_path, 1)).to_end()
