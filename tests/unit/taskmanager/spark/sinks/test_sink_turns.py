"""An author's code that shows rows: one call at a time for each subtask, none of an older attempt after a newer one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import FilesystemBackend, SinkTransaction, StateBackend
from lockgate_taskmanager.spark.sinks.foreach import ForeachBatchSink
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.spark.sinks.turns import Turns
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.task.program import Canceled, Unavailable

from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.pickled import pickled

CONTEXT = SinkContext("job", "run", 1, "v", 0, "op", "the sink", parallelism=1)
PATIENCE_S = 60.0


def at(attempt: int, subtask: int = 0, parallelism: int = 1) -> SinkContext:
    return replace(CONTEXT, attempt=attempt, subtask=subtask, parallelism=parallelism)


class Held:
    """A call of an attempt that runs until it is released."""

    def __init__(self, turns: Turns, context: SinkContext) -> None:
        self._entered, self._release = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self._run, turns, context)
        assert self._entered.wait(PATIENCE_S)

    def _run(self, turns: Turns, context: SinkContext) -> None:
        with turns.take(context):
            self._entered.set()
            assert self._release.wait(PATIENCE_S)

    def end(self) -> None:
        self._release.set()
        self._done.result(PATIENCE_S)
        self._pool.shutdown()


def test_the_next_attempt_waits_for_the_call_of_the_one_before() -> None:
    turns = Turns()
    older = Held(turns, at(1))
    with ThreadPoolExecutor(1) as pool:
        newer = pool.submit(Held, turns, at(2))
        assert not newer.done()
        older.end()
        newer.result(PATIENCE_S).end()


def test_a_call_that_does_not_end_fails_the_next_attempt_with_a_reason() -> None:
    turns = Turns(patience_s=0.0)
    older = Held(turns, at(1))
    with pytest.raises(Unavailable, match="the sink: a call of attempt 1 has run for"), turns.take(at(2)):
        raise AssertionError("two calls at a time")
    older.end()
    with turns.take(at(2)):
        pass


def test_a_cancel_ends_the_wait() -> None:
    turns = Turns()
    older = Held(turns, at(1))

    def canceled() -> None:
        raise Canceled("the sink was cancelled")

    with pytest.raises(Canceled, match="the sink was cancelled"), turns.take(at(2), canceled):
        raise AssertionError("two calls at a time")
    older.end()


def test_an_older_attempt_never_calls_after_a_newer_one() -> None:
    turns = Turns()
    with turns.take(at(2)):
        pass
    with pytest.raises(Canceled), turns.take(at(1)):
        raise AssertionError("a call of an attempt that was replaced")


def test_subtasks_of_one_attempt_and_other_jobs_call_at_the_same_time() -> None:
    turns = Turns(patience_s=0.0)
    calls = [Held(turns, at(1, 0, 2)), Held(turns, at(1, 1, 2))]
    calls += [Held(turns, replace(CONTEXT, run_id="other")), Held(turns, replace(CONTEXT, operator_id="other"))]
    for call in calls:
        call.end()


def test_a_scaled_down_job_waits_for_the_calls_of_removed_subtasks() -> None:
    turns = Turns(patience_s=0.0)
    older = Held(turns, at(1, 1, 2))
    with pytest.raises(Unavailable), turns.take(at(2, 0, 1)):
        raise AssertionError("two calls at a time")
    with turns.take(at(2, 0, 2)):
        pass  # its rows are none of subtask 1's
    older.end()


def test_it_remembers_no_more_than_it_has_to() -> None:
    turns = Turns()
    for number in range(3_000):
        with turns.take(replace(CONTEXT, run_id=str(number))):
            pass
    assert len(turns._operators) <= 1_001


def staged(sink: ForeachBatchSink, folder: Path) -> SinkTransaction:
    sink.write(pa.table({"x": [1, 2, 3]}))
    (pending,) = sink.seal(7)
    backend = make_backend(StateBackend(backend=FilesystemBackend()), folder.as_uri(), "p")
    return pending.persist(backend.writer(7))


def test_a_function_is_not_called_by_two_attempts_at_once(tmp_path: Path) -> None:
    table: list[tuple[int, int]] = []
    entered, release = threading.Event(), threading.Event()

    def append_once(rows: pa.Table, checkpoint_id: int) -> None:
        if any(known == checkpoint_id for known, _ in table):
            return
        entered.set()
        assert release.wait(PATIENCE_S)
        table.extend((checkpoint_id, x) for x in rows.column("x").to_pylist())

    context = replace(CONTEXT, run_id="twice")
    older = ForeachBatchSink(context, append_once, lambda rows: rows)
    transaction = staged(older, tmp_path)
    newer = ForeachBatchSink(replace(context, attempt=2), append_once, lambda rows: rows)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(older.commit, 7)
        assert entered.wait(PATIENCE_S)
        second = pool.submit(newer.restore, (transaction,))
        release.set()
        first.result(PATIENCE_S)
        second.result(PATIENCE_S)
    assert table == [(7, 1), (7, 2), (7, 3)]


def test_a_function_with_a_parameter_attempt_gets_its_number(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def fenced(_rows: Any, checkpoint_id: int, attempt: int) -> None:
        seen.append((checkpoint_id, attempt))

    context = replace(CONTEXT, run_id="number", attempt=3)
    sink = ForeachBatchSink(context, fenced, lambda rows: rows)
    staged(sink, tmp_path)
    sink.commit(7)
    assert seen == [(7, 3)]


def test_the_builder_takes_functions_with_and_without_the_attempt() -> None:
    for function in (lambda df, checkpoint_id: None, lambda df, checkpoint_id, attempt: None):  # noqa: ARG005
        assert pickled("foreach_batch", function, ("df", "checkpoint_id"), optional=("attempt",))
    with pytest.raises(PipelineError, match="df, checkpoint_id"):
        pickled("foreach_batch", lambda df: None, ("df", "checkpoint_id"), optional=("attempt",))  # noqa: ARG005
