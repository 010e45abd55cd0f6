"""What an operator reads in Spark's own UI: whose job it is. Read back from the status store behind that UI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import AttemptId, SubtaskId
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.task.program import ProgramContext

from .conftest import await_listeners
from .graphs import HASH, WORDS, Edge, count_by, graph, sql, text, vertex

pytestmark = pytest.mark.integration


def newest(engine: SparkEngine) -> tuple[int, str | None]:
    """Number and description of the job that was started last."""
    await_listeners(engine)
    store = engine._session.sparkContext._jsc.sc().statusStore()
    job = store.jobsList(None).head()  # newest first
    text = job.description()
    return job.jobId(), text.get() if text.isDefined() else None


def test_jobs_are_named_after_job_subtask_and_checkpoint(
    engine: SparkEngine, job: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("x y\n" * 50_000)  # more than a first batch takes
    run = job(graph(vertex("source", text(tmp_path / "a"), WORDS)))
    run.fix_batch_size("source", 50_000)
    assert run.batch("source")
    first, name = newest(engine)
    assert name == "job source[0] attempt 1, before the first checkpoint"
    kept = run.checkpoint(1)
    assert run.batch("source")
    second, name = newest(engine)
    assert (second > first, name) == (True, "job source[0] attempt 1, after checkpoint 1")
    run.close()
    run.attempt = 6
    run.start(restore=kept)
    assert run.batch("source")
    assert newest(engine)[1] == "job source[0] attempt 7, before the first checkpoint", "no checkpoint id was given"
    run.close()
    engine._session.range(1).collect()
    assert newest(engine)[1] is None, "the thread belongs to no program again"


def test_a_restored_attempt_starts_with_its_checkpoints_number(engine: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x y\n")
    job_graph = graph(vertex("source", text(tmp_path / "a"), WORDS))
    subtask = SubtaskId(AttemptId("orders", "run", 3), "source", 0)
    program = engine.build(ProgramContext(subtask, job_graph, str(tmp_path / "state"), restored_checkpoint_id=41))
    try:
        program.open()
        program.assign(*engine.discover(job_graph, "source", ()))
        program.poll()
        assert newest(engine)[1] == "orders source[0] attempt 3, after checkpoint 41"
    finally:
        program.close()


def test_each_job_counts_for_the_subtask_that_runs_it(engine: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x y\n")
    job_graph = graph(vertex("source", text(tmp_path / "a"), WORDS))
    contexts = [
        ProgramContext(SubtaskId(AttemptId("orders", "run", 3), "source", number), job_graph, str(tmp_path))
        for number in range(2)
    ]
    programs = [engine.build(context) for context in contexts]
    try:
        for program in programs:
            program.open()
        await_listeners(engine)
        before, spent = newest(engine)[0], [context.engine_time.jobs for context in contexts]
        programs[1].assign(*engine.discover(job_graph, "source", ()))
        programs[1].poll()
        run = newest(engine)[0] - before
        assert run > 0
        assert [context.engine_time.jobs for context in contexts] == [spent[0], spent[1] + run]
        assert contexts[1].engine_time.seconds > 0
    finally:
        for program in programs:
            program.close()


def test_warm_ups_are_named_too_although_they_share_a_thread(engine: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x y\n")
    job_graph = graph(
        vertex("source", text(tmp_path / "a"), WORDS),
        vertex("count", count_by("word"), sql("SELECT * FROM input")),
        edges=(Edge("source", "count", HASH, ("word",)),),
    )
    programs = {}
    for name in ("source", "count"):
        subtask = SubtaskId(AttemptId("orders", "run-r", 0), name, 0)
        programs[name] = engine.build(ProgramContext(subtask, job_graph, str(tmp_path), is_warmup=True))
    try:
        prologue = programs["source"].open()
        programs["count"].open()
        for emission in prologue.emissions:
            programs["count"].process("source", emission.table)
        for name in ("source", "count", "source"):
            programs[name].warm_up()
            assert newest(engine)[1] == f"warm-up of orders {name}[0]"
    finally:
        for program in programs.values():
            program.close()
