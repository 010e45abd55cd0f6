"""A cancelled attempt stops between the stages of a batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import ConsoleSink, JobGraph, Operator, SinkTransaction, SubtaskId
from lockgate_taskmanager.spark.dead_letters import DeadLetters
from lockgate_taskmanager.spark.layout import ChainLayout, SinkStage
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from lockgate_taskmanager.spark.sources.reading import BatchSizer
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import Canceled, ProgramContext


class NoJobs:
    def adopt_thread(self) -> None: ...

    def interrupt(self) -> None: ...


class NoOutputs:
    def compile(self, schema: pa.Schema, is_fused: bool) -> None: ...

    def prologue(self) -> tuple[()]:
        return ()

    def emit(self, value: pa.Table) -> tuple[tuple[()], int]:
        raise AssertionError(f"a cancelled batch was put out: {value.num_rows} rows")


class Recording(Sink):
    """Calls back at each write."""

    def __init__(self, name: str, written: list[str]) -> None:
        super().__init__(SinkContext("job", "run", 1, "v", 0, name, f"operator '{name}'"))
        self.written = written
        self.on_write: Any = lambda: None

    def prepare(self, schema: pa.Schema) -> None: ...

    def write(self, table: pa.Table) -> None:  # noqa: ARG002
        self.written.append(self.context.operator_id)
        self.on_write()

    def _seal(self, checkpoint_id: int) -> Pending | None: ...

    def _commit(self, pending: Pending) -> None: ...

    def _commit_restored(self, transaction: SinkTransaction) -> None: ...


def test_a_batch_that_is_cancelled_in_one_stage_does_not_reach_the_next() -> None:
    written: list[str] = []
    sinks = [Recording("first", written), Recording("second", written)]
    operators = tuple(Operator(id=sink.context.operator_id, kind=ConsoleSink()) for sink in sinks)
    stages = tuple(SinkStage(operator, sink) for operator, sink in zip(operators, sinks, strict=True))
    layout = ChainLayout(operators, None, None, None, stages, range(128), 128)
    jobs: Any = NoJobs()
    outputs: Any = NoOutputs()
    context = ProgramContext(SubtaskId(None, "v", 0), JobGraph("job"), "")
    program = ChainProgram(
        context,
        layout,
        outputs,
        outputs,
        DeadLetters({}),
        jobs,
        InlineBackend(1),
        None,
        BatchSizer(300, 1000),
    )
    sinks[0].on_write = program.cancel
    with pytest.raises(Canceled):
        program.process("source", pa.table({"x": [1]}))
    assert written == ["first"]
