"""A cancelled attempt stops between the stages of a batch, and every program can be closed."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    ConsoleSink,
    JobGraph,
    KeyedProcess,
    ObjectState,
    Operator,
    RecordCall,
    RecordForm,
    RecordFunction,
    SinkTransaction,
    SubtaskId,
)
from lockgate_taskmanager.spark import running_call, user_code
from lockgate_taskmanager.spark.dead_letters import DeadLetters
from lockgate_taskmanager.spark.functions.stage import FunctionContext, FunctionStage
from lockgate_taskmanager.spark.layout import ChainLayout, SinkStage
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from lockgate_taskmanager.spark.sources.reading import BatchSizer
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.state.store import ProcessingTimeStore
from lockgate_taskmanager.task.program import Canceled, DataError, ProgramContext, StateRefused
from pyspark import cloudpickle


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

    def __init__(self, *functions: FunctionStage, keyed: Operator | None = None) -> None:
        self.calls: list[str] = []
        self.sinks = [Recording("first", self.calls), Recording("second", self.calls)]
        sinks = tuple(Operator(id=sink.context.operator_id, kind=ConsoleSink()) for sink in self.sinks)
        called = tuple(operator for function in functions for operator in function.operators)
        operators = (*(() if keyed is None else (keyed,)), *called, *sinks)
        stages = (*functions, *map(SinkStage, sinks, self.sinks))
        layout = ChainLayout(
            operators, None, None, keyed, stages, range(128), 128, release=lambda: self.calls.append("release")
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


def function(operator_id: str, value: Any) -> FunctionStage:
    """Of an object whose state is what `value` returns."""

    class Counting:
        def __call__(self, record: Any) -> bool:
            return bool(record)

        def snapshot_state(self) -> Any:
            return value()

        def restore_state(self, state: Any) -> None: ...

    fixed = ObjectState.OBJECT_STATE_FIXED
    kind = RecordFunction(cloudpickle.dumps(Counting()), "f", RecordCall.FILTER, RecordForm.RECORDS, state=fixed)
    session: Any = None  # asked for a declared schema only
    context = FunctionContext("job", operator_id, 0, 1, 1)
    return FunctionStage(Operator(id=operator_id, kind=kind), context, session, False, has_files=True)


def endless() -> None:
    while True:
        pass


def test_a_snapshot_of_an_object_that_hangs_is_shown_and_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_call, "_PLANNING_S", 0.0)
    program = Chain(function("fine", int), function("hanging", endless)).program
    failures: list[BaseException] = []

    def work() -> None:
        try:
            program.snapshot(1)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    pause, shown = threading.Event(), []
    for _ in range(6000):
        shown = [at_work.what] if (at_work := program.at_work()) else []
        if shown == ["operator 'hanging'"]:
            break
        pause.wait(0.01)
    assert shown == ["operator 'hanging'"]
    for _ in range(600):
        program.cancel()
        thread.join(0.1)
        if not thread.is_alive():
            break
    assert [type(failure) for failure in failures] == [Canceled]


def test_the_object_whose_state_is_refused_is_the_place_of_the_failure() -> None:
    def refuse() -> None:
        raise ValueError("half a state")

    program = Chain(function("refusing", refuse), function("fine", int)).program
    with pytest.raises(StateRefused, match="half a state"):
        program.snapshot(1)
    place = program.place()
    assert place is not None
    assert place.operator_id == "refusing"


class Firing:
    """Keyed state whose results cannot be made of its records."""

    schema = partial_schema = pa.schema([])
    has_more = is_settled = True

    def __init__(self, look: Any) -> None:
        self._look = look

    def _fail(self, *_: Any) -> Any:
        self._look()
        raise DataError("a bad record", where="")

    advance = go_on = tick = _fail

    def merge(self, *_: Any) -> Any: ...

    def snapshot(self, *_: Any) -> Any: ...

    def wakes_at(self) -> Any: ...

    def set_input_schema(self, *_: Any) -> Any: ...

    def warm_up(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("call", ["advance", "tick", "go_on"])
def test_what_keyed_state_fires_is_the_work_of_its_operator_and_its_fault(call: str) -> None:
    program = Chain(keyed=Operator(id="keyed", kind=KeyedProcess())).program
    program.commit(1)  # by the sinks
    seen: list[Any] = []
    state: Any = Firing(lambda: seen.append(program.at_work()))
    assert isinstance(state, ProcessingTimeStore)
    program._state = state
    with pytest.raises(DataError, match=r"^operator 'keyed': a bad record$"):
        getattr(program, call)(*([] if call == "go_on" else [5]))
    assert [at_work.what for at_work in seen] == ["operator 'keyed'"]
    place = program.place()
    assert place is not None
    assert place.operator_id == "keyed"
