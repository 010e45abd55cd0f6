"""A cancelled attempt stops between the stages of a batch, and every program can be closed."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import ConsoleSink, JobGraph, Operator, SinkTransaction, SubtaskId
from lockgate_taskmanager.spark import running_call, user_code
from lockgate_taskmanager.spark.dead_letters import DeadLetters
from lockgate_taskmanager.spark.layout import ChainLayout, SinkStage
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from lockgate_taskmanager.spark.sources.reading import BatchSizer
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import Canceled, ProgramContext


class NoJobs:
    def adopt_thread(self) -> None: ...

    def leave_thread(self) -> None: ...

    def interrupt(self) -> None: ...

    def log_stacks(self, thread: int, took_s: float) -> None: ...


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
        self.on_close: Any = lambda: None

    def prepare(self, schema: pa.Schema) -> None: ...

    def write(self, table: pa.Table) -> None:  # noqa: ARG002
        self.written.append(self.context.operator_id)
        self.on_write()

    def close(self) -> None:
        self.written.append(f"close {self.context.operator_id}")
        self.on_close()

    def _seal(self, checkpoint_id: int) -> Pending | None: ...

    def _commit(self, pending: Pending) -> None: ...

    def _commit_restored(self, transaction: SinkTransaction) -> None: ...


class Chain:
    """A program with two sinks, and what they were asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.sinks = [Recording("first", self.calls), Recording("second", self.calls)]
        operators = tuple(Operator(id=sink.context.operator_id, kind=ConsoleSink()) for sink in self.sinks)
        stages = tuple(SinkStage(operator, sink) for operator, sink in zip(operators, self.sinks, strict=True))
        layout = ChainLayout(
            operators, None, None, None, stages, range(128), 128, release=lambda: self.calls.append("release")
        )
        jobs: Any = NoJobs()
        outputs: Any = NoOutputs()
        context = ProgramContext(SubtaskId(None, "v", 0), JobGraph("job"), "")
        self.program = ChainProgram(
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


def test_a_batch_that_is_cancelled_in_one_stage_does_not_reach_the_next() -> None:
    chain = Chain()
    chain.sinks[0].on_write = chain.program.cancel
    with pytest.raises(Canceled):
        chain.program.process("source", pa.table({"x": [1]}))
    assert chain.calls == ["first"]


def test_a_cancel_reaches_sinks_that_wait_for_another_system() -> None:
    chain = Chain()
    chain.program.cancel()
    for sink in chain.sinks:
        with pytest.raises(Canceled, match=f"operator '{sink.context.operator_id}' was cancelled"):
            sink.require_live()


def test_a_sink_that_cannot_be_closed_keeps_nothing_else_open() -> None:
    chain = Chain()

    def fail() -> None:
        raise OSError("the connection is away")

    chain.sinks[0].on_close = fail
    with pytest.raises(OSError, match="the connection is away"):
        chain.program.close()
    assert chain.calls == ["close first", "close second", "release"]


def test_a_close_that_hangs_is_shown_and_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_call, "_CLOSING_S", 0.0)
    chain, inside = Chain(), threading.Event()

    class Hanging:
        def close(self) -> None:
            inside.set()
            while True:
                pass

    chain.sinks[0].on_close = lambda: user_code.close_quietly(Hanging(), "operator 'first'")
    thread = threading.Thread(target=chain.program.close, daemon=True)
    thread.start()
    assert inside.wait(60)
    at_work = chain.program.at_work()
    assert at_work is not None
    assert at_work.what == "operator 'first'"
    chain.program.cancel()
    thread.join(60)
    assert not thread.is_alive()
    assert chain.calls == ["close first", "close second", "release"]
