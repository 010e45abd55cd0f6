"""A subtask's operators: compiled to Spark plans, keyed state and sinks, run one micro-batch at a time.

    source content | received table --> [keyed aggregate] --> stage --> stage ... --> outputs

A stage is a run of SQL and Python transforms in one Spark job, or one sink (which passes its input on).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import (
    OperatorCounters,
    OperatorState,
    SinkState,
    SourceState,
    SplitState,
    StateKind,
)

from taskmanager.spark.chain import named
from taskmanager.spark.counting import Counters
from taskmanager.spark.jobs import Jobs, description
from taskmanager.spark.layout import ChainLayout, SinkStage, SparkStage
from taskmanager.spark.leaf import Content, Form, LeafSpec
from taskmanager.spark.outputs import Outputs
from taskmanager.spark.snapshot import ChainSnapshot
from taskmanager.spark.sources.reading import BatchSizer, Reading
from taskmanager.state.backend import Backend, load
from taskmanager.state.keyed import KeyedState
from taskmanager.state.stored import read as read_stored
from taskmanager.state.stored import signature
from taskmanager.task.program import (
    Batch,
    Canceled,
    Emission,
    Exhausted,
    Idle,
    Poll,
    ProgramContext,
    ProgramError,
    StateUnreadable,
    UserError,
)


class ChainProgram:
    """See `taskmanager.task.program.SubtaskProgram`."""

    def __init__(
        self,
        context: ProgramContext,
        layout: ChainLayout,
        outputs: Outputs,
        jobs: Jobs,
        backend: Backend,
        sizer: BatchSizer,
    ) -> None:
        self._context = context
        self._layout = layout
        self._outputs = outputs
        self._jobs = jobs
        self._backend = backend
        self._sizer = sizer
        restored = context.restore.counters if context.restore else ()
        self._counters = Counters(layout.operators, restored)
        self._state: KeyedState | None = None
        self._input: tuple[str, pa.Schema] | None = None  # source vertex and schema of the first table received
        self._compiled = False
        self._canceled = threading.Event()
        self._closed = False

    @property
    def is_source(self) -> bool:
        """See SubtaskProgram."""
        return self._layout.source is not None

    def open(self) -> Batch:
        """See SubtaskProgram."""
        with self._interruptible():
            for operator in self._context.restore.operators if self._context.restore else ():
                self._restore(operator)
            for stage in self._layout.stages:
                if isinstance(stage, SinkStage):
                    stage.sink.restore(stage.restored)
            if self._layout.source is not None:
                spec = self._layout.source.spec()
                if spec is not None:
                    return self._compile(spec)
            return Batch()

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """See SubtaskProgram."""
        assert self._layout.source is not None, "only sources have splits"
        self._layout.source.assign(splits, complete)

    def poll(self) -> Poll:
        """See SubtaskProgram."""
        source = self._layout.source
        assert source is not None, "only sources are polled"
        with self._interruptible():
            prologue: tuple[Emission, ...] = ()
            if not self._compiled:
                spec = source.spec()
                if spec is None:
                    return Exhausted() if source.complete else Idle(1000)
                prologue = self._compile(spec).emissions
            started = time.monotonic()
            reading = source.read(self._sizer.budget_bytes, int(started * 1000))
            if not isinstance(reading, Reading):
                return Batch(prologue) if prologue else reading
            if self._layout.head is not None:
                self._counters.add((self._layout.head,), reading.rows, reading.rows)
            batch = self._run(reading.content, reading.rows)
            self._sizer.observed(reading.bytes, (time.monotonic() - started) * 1000, reading.full)
            return Batch(prologue + batch.emissions, batch.reached_sink)

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        """See SubtaskProgram."""
        with self._interruptible():
            prologue = self._accept(source_vertex, table.schema)
            if not table.num_rows:
                return Batch(prologue)
            assert self._input is not None
            if not table.schema.equals(self._input[1]):
                table = table.select(self._input[1].names).cast(self._input[1])
            if self._layout.aggregate is None:
                batch = self._run(table, table.num_rows)
            else:
                assert self._state is not None
                merged = self._state.merge(table)
                self._counters.add((self._layout.aggregate,), merged.records, merged.changed.num_rows)
                batch = self._run(merged.changed, merged.changed.num_rows)
            return Batch(prologue + batch.emissions, batch.reached_sink)

    def rehearse(self) -> None:
        """See SubtaskProgram."""
        with self._interruptible():
            if self._compiled:
                for stage in self._layout.stages:
                    if isinstance(stage, SparkStage):
                        self._require_live()
                        stage.rehearse()
                self._outputs.rehearse()

    def finish(self) -> Batch:
        """See SubtaskProgram. Every batch has left the chain already."""
        return Batch()

    def snapshot(self, checkpoint_id: int) -> ChainSnapshot:
        """See SubtaskProgram."""
        layout, subtask = self._layout, self._context.subtask
        source = None
        if layout.source is not None and layout.head is not None:
            source = (layout.head.id, layout.source.splits(), layout.source.complete)
        keyed = None
        if self._state is not None and layout.aggregate is not None:
            keyed = (layout.aggregate.id, self._state.freeze())
        stages = [stage for stage in layout.stages if isinstance(stage, SinkStage) and stage.sink.is_transactional]
        sinks = tuple((stage.operator.id, stage.sink.seal(checkpoint_id)) for stage in stages)
        counters = self._counters.values()
        self._jobs.describe(description(subtask, checkpoint_id))
        return ChainSnapshot(
            checkpoint_id, subtask.vertex_id, subtask.subtask, self._backend, counters, source, keyed, sinks
        )

    def commit(self, checkpoint_id: int) -> None:
        """See SubtaskProgram."""
        with self._interruptible():
            for stage in self._layout.stages:
                if isinstance(stage, SinkStage):
                    stage.sink.commit(checkpoint_id)

    def counters(self) -> tuple[OperatorCounters, ...]:
        """See SubtaskProgram."""
        return self._counters.values()

    def cancel(self) -> None:
        """See SubtaskProgram. May be called again while a job that was just starting still runs."""
        self._canceled.set()
        if not self._closed:
            self._jobs.interrupt()

    def close(self) -> None:
        """See SubtaskProgram."""
        if self._closed:
            return
        self._closed = True
        if self._layout.source is not None:
            self._layout.source.close()
        for stage in self._layout.stages:
            if isinstance(stage, SinkStage):
                stage.sink.close()
        self._jobs.leave_thread()
        self._layout.release()

    def _run(self, value: Content, rows: int) -> Batch:
        """A batch through stages and outputs. rows: records in it."""
        reached = 0
        layout = self._layout
        last = layout.stages[-1] if layout.stages else None
        for stage in layout.stages:
            self._require_live()
            if isinstance(stage, SinkStage):
                stage.sink.write(value)
                reached += rows
                self._counters.add((stage.operator,), rows, rows)
            elif stage is not last:
                value = stage.run(value)
                self._counters.add(stage.operators, rows, value.num_rows)
                rows = value.num_rows
        if isinstance(last, SparkStage):
            value = last.run(value)
            self._require_live()
        emissions, put_out = self._outputs.emit(value)
        if isinstance(last, SparkStage):
            self._counters.add(last.operators, rows, put_out)
        return Batch(emissions, reached)

    def _accept(self, source_vertex: str, schema: pa.Schema) -> tuple[Emission, ...]:
        """Compiles for the first schema received; refuses another one. Returns the prologue, the first time."""
        if self._input is not None:
            _require_same(self._input, (source_vertex, schema), self._context.subtask.vertex_id)
            return ()
        self._input = (source_vertex, pa.schema([pa.field(field.name, field.type) for field in schema]))
        aggregate = self._layout.aggregate
        if aggregate is None:
            return self._compile(LeafSpec(Form.TABLE, table=self._input[1])).emissions
        if self._state is None:
            try:
                self._state = KeyedState(self._layout.aggregation, schema, self._layout.max_parallelism)
            except UserError as error:
                raise UserError(f"{named(aggregate)}: {error}") from error
        else:
            stored = (f"the restored state of {named(aggregate)}", self._state.partial_schema)
            _require_same(stored, (source_vertex, schema), self._context.subtask.vertex_id)
        return self._compile(LeafSpec(Form.TABLE, table=self._state.schema)).emissions

    def _compile(self, spec: LeafSpec) -> Batch:
        schema = spec.table
        stages = self._layout.stages
        fused = self._outputs.fused() if stages and isinstance(stages[-1], SparkStage) else None
        for stage in stages:
            if isinstance(stage, SinkStage):
                stage.sink.prepare(schema)
            else:
                schema = stage.compile(spec, fused if stage is stages[-1] else None)
            spec = LeafSpec(Form.TABLE, table=schema)
        self._outputs.compile(schema, is_fused=bool(stages) and isinstance(stages[-1], SparkStage))
        self._compiled = True
        return Batch(self._outputs.prologue())

    def _restore(self, operator: OperatorState) -> None:
        layout = self._layout
        if operator.handle is None:
            return
        data = load(operator.handle)
        where = operator.handle.path or f"of operator {operator.operator_id} inside the checkpoint"
        try:
            if operator.kind == StateKind.SOURCE_STATE and layout.source is not None:
                state = decode(SourceState, data.to_pybytes())
                layout.source.assign(state.splits, state.complete)
            elif operator.kind == StateKind.SINK_STATE:
                layout.sink_stage(operator.operator_id).restored = decode(SinkState, data.to_pybytes()).pending
            elif operator.kind == StateKind.KEYED_STATE and layout.aggregate is not None:
                found = read_stored(
                    data,
                    where,
                    signature=signature(layout.aggregation),
                    max_parallelism=layout.max_parallelism,
                    wanted=layout.key_groups,
                )
                self._state = KeyedState(layout.aggregation, found.partial_schema, layout.max_parallelism)
                self._state.restore([found])
            else:
                raise StateUnreadable(f"the state {where} belongs to an operator that the job does not have")
        except MalformedMessage as error:
            raise StateUnreadable(f"the state {where} cannot be read: {error}") from error

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Everything that may run Spark jobs: tagged, and Canceled once `cancel` was called."""
        self._require_live()
        self._jobs.adopt_thread()
        try:
            yield
        except ProgramError as error:
            if self._canceled.is_set() and not isinstance(error, Canceled):
                raise Canceled("the subtask was cancelled") from error
            raise
        self._require_live()

    def _require_live(self) -> None:
        """Raises Canceled once `cancel` was called; asked between stages, so that no further one starts."""
        if self._canceled.is_set():
            raise Canceled("the subtask was cancelled")


def _require_same(first: tuple[str, pa.Schema], other: tuple[str, pa.Schema], vertex_id: str) -> None:
    """Raises UserError unless both inputs of a union have the same columns (in any order) and types."""
    ours = {field.name: field.type for field in first[1]}
    theirs = {field.name: field.type for field in other[1]}
    if ours == theirs:
        return
    raise UserError(
        f"the inputs of {vertex_id} differ: {first[0]} sends ({_columns(first[1])}),"
        f" {other[0]} sends ({_columns(other[1])}); give them the same columns and types with SELECT and CAST"
    )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
