"""What is particular to the sink that calls the author's function."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_proto.messages import FailureCause, SinkTransaction
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.spark.sinks.foreach import ForeachBatchSink as ForeachBatchCaller
from lockgate_taskmanager.spark.sinks.foreach import FunctionFailed
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.task.program import DataError, UserCodeFailed
from pyspark.errors import AnalysisException, PythonException

from tests.unit.taskmanager.spark.sink_rows import context, persisted, rows

pytestmark = pytest.mark.usefixtures("processes_apart")


def test_a_subtask_that_replaces_several_calls_the_function_once_for_an_id(tmp_path: Path) -> None:
    calls: list[tuple[int, list[str]]] = []

    def called(table: pa.Table, checkpoint_id: int) -> None:
        calls.append((checkpoint_id, table["k"].to_pylist()))

    staged: list[SinkTransaction] = []
    for subtask in (0, 1):
        sink = ForeachBatchCaller(context(subtask=subtask), called, lambda table: table)
        backend = FileBackend(str(tmp_path), f"a{subtask}")
        for checkpoint_id in (6, 7):  # 6 was aborted
            sink.write(rows((f"{subtask}-{checkpoint_id}", 1)))
            pending = sink.seal(checkpoint_id)
        staged += [sealed.persist(backend.writer(7)) for sealed in pending]
    heir = ForeachBatchCaller(context(attempt=2), called, lambda table: table)
    for _ in range(2):
        heir.restore(staged)
    assert calls == [(6, ["0-6", "1-6"]), (7, ["0-7", "1-7"])] * 2


def test_a_function_that_raises_is_a_fault_that_keeps_its_message() -> None:
    def failing(_: object, checkpoint_id: int) -> None:
        raise ConnectionError(f"no route for {checkpoint_id}")

    sink = ForeachBatchCaller(context(), failing, lambda table: table)
    sink.write(rows(("a", 1)))
    persisted(sink, 7)
    with pytest.raises(FunctionFailed, match=r"operator 'op': .* raised ConnectionError: no route for 7") as raised:
        sink.commit(7)
    assert cause_of(raised.value) is FailureCause.USER_CODE


def test_a_function_whose_task_raises_may_pass_and_what_it_makes_of_the_rows_does_not() -> None:
    raising: list[Exception] = [
        PythonException("ConnectionError: no route"),
        AnalysisException("no such column"),
        KeyError("no such column"),
    ]

    def failing(*_: object) -> None:
        raise raising[0]

    sink = ForeachBatchCaller(context(), failing, lambda table: table)
    sink.write(rows(("a", 1)))
    sink.seal(7)
    with pytest.raises(UserCodeFailed, match="no route"):
        sink.commit(7)
    for _ in range(2):
        raising.pop(0)
        with pytest.raises(DataError, match="no such column"):
            sink.commit(7)
