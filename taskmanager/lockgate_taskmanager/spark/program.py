"""A subtask's operators: compiled to Spark plans, keyed state and sinks, run one micro-batch at a time.

    source content | received table --> [keyed state | join] --> stage --> stage ... --> outputs

A stage is a sequence of SQL and Python transforms in one Spark job, a function over records, or one sink (which passes
its input on).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import (
    FailurePlace,
    Operator,
    OperatorCounters,
    OperatorState,
    SplitRange,
    SplitState,
    Watermark,
)

from lockgate_taskmanager.spark.chain import named, naming
from lockgate_taskmanager.spark.counting import Counters
from lockgate_taskmanager.spark.dead_letters import DeadLetters
from lockgate_taskmanager.spark.functions.stage import FunctionStage
from lockgate_taskmanager.spark.inputs import like, plain, require_same
from lockgate_taskmanager.spark.jobs import Jobs, description
from lockgate_taskmanager.spark.join_head import JoinHead, followed
from lockgate_taskmanager.spark.layout import ChainLayout, SinkStage, SparkStage, blamed, id_of
from lockgate_taskmanager.spark.leaf import Content, Form, LeafSpec
from lockgate_taskmanager.spark.malformed import lines_of
from lockgate_taskmanager.spark.outputs import Outputs
from lockgate_taskmanager.spark.running_call import RunningCall
from lockgate_taskmanager.spark.snapshot import ChainSnapshot, restore_plain
from lockgate_taskmanager.spark.sources.read_ahead import ReadAhead
from lockgate_taskmanager.spark.sources.reading import BatchSizer, Reading, rested
from lockgate_taskmanager.spark.split_log import SplitLog, split_log
from lockgate_taskmanager.state.backend import Backend, FileBackend
from lockgate_taskmanager.state.columns.pieces import cut
from lockgate_taskmanager.state.factory import KEYED_KINDS
from lockgate_taskmanager.state.store import (
    CompiledStore,
    Fires,
    FrozenStore,
    KeyedStore,
    OperatorStores,
    PassesLateRecords,
    ProcessingTimeStore,
)
from lockgate_taskmanager.task.program import (
    BY_ITSELF,
    AtWork,
    Batch,
    DataError,
    Emission,
    Exhausted,
    Idle,
    Poll,
    ProgramContext,
    SnapshotOrder,
    StateUnreadable,
)
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

_MAX_RANGES = 16  # a batch may read thousands of small files


class ChainProgram:
    """The SubtaskProgram of one chain of operators on Spark."""

    def __init__(
        self,
        context: ProgramContext,
        layout: ChainLayout,
        outputs: Outputs,
        late: Outputs,
        dead: DeadLetters,
        jobs: Jobs,
        backend: Backend,
        stores: OperatorStores | None,
        sizer: BatchSizer,
        join: JoinHead | None = None,
    ) -> None:
        self._context = context
        self._layout = layout
        self._outputs = outputs
        self._late, self._dead = late, dead
        self._jobs = jobs
        self._backend = backend
        self._stores = stores  # of the operator with keyed state, where there is one
        self._sizer = sizer
        restored = context.restore.counters if context.restore else ()
        self._counters = Counters(layout.operators, restored)
        self._state: KeyedStore | None = None
        self._join = join
        self._event_time = layout.split_watermarks()
        self._splits: SplitLog | None = None
        self._ahead = layout.source if isinstance(layout.source, ReadAhead) else None
        if layout.source is not None and layout.head is not None:
            marked = tuple if self._event_time is None else self._event_time.marked
            self._splits = split_log(layout.head.id, layout.source, marked, isinstance(backend, FileBackend))
        self._input: tuple[str, pa.Schema] | None = None  # source vertex and schema of the first table received
        self._compiled = False
        self.irreproducible = ""
        self._rest: Iterator[Batch] | None = None  # of the last table received
        self._unix_ms = 0  # the wall clock of the last tick
        self._call = RunningCall(jobs)
        self._at = self._column = ""  # the operator that is running, and the column that it failed on
        self._ranges: tuple[SplitRange, ...] = ()  # the last input of the source

    @property
    def is_source(self) -> bool:
        return self._layout.source is not None

    def open(self) -> Batch:
        with self._interruptible():
            states = self._context.restore.operators if self._context.restore else ()
            for operator in states:
                restore_plain(self._layout, operator, self._take)
            self._restore_keyed([state for state in states if state.kind in KEYED_KINDS])
            for stage in self._layout.stages:
                self._at = id_of(stage)
                if isinstance(stage, SinkStage):
                    stage.sink.restore(stage.restored)
                elif isinstance(stage, FunctionStage):
                    stage.open(self._context.restored_checkpoint_id)
            spec = self._layout.source.spec() if self._layout.source is not None else None
            return Batch() if spec is None else self._compile(spec)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        self._take(splits, complete)
        if self._event_time is not None:
            self._event_time.assigned()

    def poll(self) -> Poll:
        source = self._layout.source
        assert source is not None, "only sources are polled"
        if pause := self._sizer.pause(int(time.monotonic() * 1000)):
            return pause  # event time stands still: records may be waiting
        with self._interruptible():
            prologue: tuple[Emission, ...] = ()
            if not self._compiled:
                spec = source.spec()
                if spec is None:
                    return Exhausted() if source.complete else self._waiting(Idle(1000))
                prologue = self._compile(spec).emissions
            started, head = time.monotonic(), self._layout.head
            self._at, self._ranges = head.id if head is not None else "", ()
            reading = source.read(self._sizer.budget_bytes, int(started * 1000))
            if not isinstance(reading, Reading):
                return self._waiting(reading, prologue)
            if head is not None:
                self._counters.add((head,), reading.rows, reading.rows)
            self._ranges = reading.ranges
            with lines_of(head):
                batch = self._run(reading.content, reading.rows)
            self._counters.add_malformed(head, self._layout.malformed())
            self._counters.add_ahead(self._layout.declaring, self._layout.times().ahead)
            took_ms = (time.monotonic() - started - reading.other_s) * 1000
            self._sizer.observed(reading.bytes, took_ms, reading.full, reading.may_pause)
            read = (self._event_time_after(reading), reading.rows, reading.bytes)
            return Batch(prologue + batch.emissions, batch.reached_sink, *read, ranges=reading.ranges)

    @property
    def is_behind(self) -> bool:
        return self._layout.is_behind

    def backlog(self) -> Backlog:
        source = self._layout.source
        return source.unread(int(time.monotonic() * 1000)) if source is not None else Backlog()

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        self._rest = self._received(source_vertex, table)
        return self.go_on()

    def go_on(self) -> Batch:
        if self._rest is None:
            assert isinstance(self._state, Fires), "there is more"
            return self._fired(self._state, self._state.go_on)
        with self._interruptible():
            self._at = self._layout.first_id
            batch = next(self._rest)  # the remaining portions are neither in the state nor emitted
            self._rest = self._rest if batch.has_more else None
            return batch

    def _received(self, source_vertex: str, table: pa.Table) -> Iterator[Batch]:
        """A received table, in portions."""
        parts = list(cut(table))
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)
            if source_vertex in self._layout.broadcast_senders:
                yield replace(self._taken_as_state(part), has_more=not is_last, is_settled=is_last)
            elif self._join is not None:
                yield from self._joined(self._join, source_vertex, part, is_last)
            else:
                yield replace(self._processed(source_vertex, part), has_more=not is_last, is_settled=is_last)

    def _taken_as_state(self, table: pa.Table) -> Batch:
        """Records of the broadcast input: they become state of the first function, and nothing comes out."""
        stage = self._layout.stages[0]
        assert isinstance(stage, FunctionStage), "broadcast state is that of a function"
        if table.num_rows:
            stage.take_broadcast(table, self._call.require_live)
            self._counters.add(stage.operators, table.num_rows, 0)
        return Batch()

    def _processed(self, source_vertex: str, table: pa.Table) -> Batch:
        prologue = self._accept(source_vertex, table.schema)
        if not table.num_rows:
            return Batch(prologue)
        assert self._input is not None
        table = like(table, self._input[1])
        if self._layout.keyed is None:
            batch = self._run(table, table.num_rows)
        else:
            assert self._state is not None
            with blamed(self._layout.keyed):
                merged = self._state.merge(table)
            self._counters.add((self._layout.keyed,), merged.records, merged.changed.num_rows)
            self._counters.add_late(self._layout.keyed, merged.dropped)
            prologue += self._late.emit(merged.late)[0] if merged.late is not None else ()
            prologue += self._skipped(self._layout.keyed, merged.failed)
            batch = self._run_if_any(merged.changed)
        return Batch(prologue + batch.emissions, batch.reached_sink)

    def advance(self, watermark_ms: int) -> Batch:
        if self._join is not None:
            self._join.advance(watermark_ms)
            return Batch(held_back_ms=self._join.held_back_ms)
        state = self._state
        return self._fired(state, partial(state.advance, watermark_ms)) if isinstance(state, Fires) else Batch()

    def tick(self, unix_ms: int) -> Batch:
        self._unix_ms = unix_ms
        state = self._state
        return self._fired(state, partial(state.tick, unix_ms)) if isinstance(state, ProcessingTimeStore) else Batch()

    def wakes_at(self) -> int | None:
        return self._state.wakes_at() if isinstance(self._state, ProcessingTimeStore) else None

    def place(self) -> FailurePlace | None:
        return FailurePlace(self._at, self._column, self._ranges[:_MAX_RANGES])

    def at_work(self) -> AtWork | None:
        took_s = self._call.took_s()
        if took_s is None:
            return None
        operator = next((operator for operator in self._layout.operators if operator.id == self._at), None)
        text = named(operator) if operator is not None else ", ".join(map(named, self._layout.operators))
        return AtWork(text, int(took_s * 1000))

    def warm_up(self) -> None:
        with self._interruptible():
            if self._compiled:
                for stage in self._layout.stages:
                    if isinstance(stage, SparkStage):
                        self._call.require_live()
                        stage.warm_up()
                if isinstance(self._state, CompiledStore):
                    self._state.warm_up()
                self._outputs.warm_up()
                self._late.warm_up()
                self._dead.warm_up()

    def finish(self) -> Batch:
        """Every batch has left the chain already; windows have not."""
        return self.advance(MAX_WATERMARK)

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder = BY_ITSELF) -> ChainSnapshot:
        layout, subtask, objects = self._layout, self._context.subtask, tuple[FrozenStore, ...]()
        with self._interruptible():  # the author's code
            for stage in layout.stages:
                if isinstance(stage, FunctionStage):  # first: they may refuse
                    self._at, self._ranges = id_of(stage), ()
                    objects += stage.snapshot(checkpoint_id, order)
        counters = self._counters.values()
        if self._ahead is not None and layout.head is not None:
            lost = self._ahead.freeze(checkpoint_id, order.is_savepoint)
            counters = self._counters.values_losing(layout.head, lost)
        source = self._splits.freeze(order) if self._splits is not None else None
        keyed: tuple[FrozenStore, ...] = (self._state.snapshot(order),) if self._state is not None else ()
        if self._join is not None:
            keyed = self._join.snapshot(order)
        stages = [stage for stage in layout.sinks if stage.sink.is_transactional]
        sinks = tuple((stage.operator.id, stage.sink.seal(checkpoint_id)) for stage in stages)
        self._jobs.describe(description(subtask, checkpoint_id))
        return ChainSnapshot(
            checkpoint_id, subtask.vertex_id, subtask.subtask, self._backend, counters, source, objects + keyed, sinks
        )

    def commit(self, checkpoint_id: int) -> bool:
        has_output = False
        if self._ahead is not None:
            self._ahead.completed(checkpoint_id)
        with self._interruptible():
            for stage in self._layout.sinks:
                self._at, self._ranges = stage.operator.id, ()
                has_output = stage.sink.commit(checkpoint_id) or has_output
        return has_output

    def counters(self) -> tuple[OperatorCounters, ...]:
        return self._counters.values()

    def cancel(self) -> None:
        """May be called again while a job that was just starting still runs."""
        self._call.cancel()
        self._layout.cancel_sinks()

    def close(self) -> None:
        """Closes everything, also after something could not be closed. Raises the first error at the end."""
        self._call.close(self._closing())

    def _closing(self) -> Iterator[Callable[[], None]]:
        if self._layout.source is not None:
            self._at = self._layout.first_id
            yield self._layout.source.close
        for stage in self._layout.stages:
            self._at = id_of(stage)
            if isinstance(stage, SinkStage):
                yield stage.sink.close
            elif isinstance(stage, FunctionStage):
                yield stage.close
        for state in (self._state, self._join):
            if state is not None:
                yield state.close
        yield self._jobs.leave_thread
        yield self._layout.release

    def _joined(self, join: JoinHead, source_vertex: str, table: pa.Table, is_last: bool) -> Iterator[Batch]:
        """A table of one side: its pairs with the other, through stages and outputs. is_last: no portion follows.

        No portion is settled before the last pair is emitted: the rows are in the state by then, but not all of their
        pairs are out.
        """
        join.accept(source_vertex, table.schema)
        emissions: tuple[Emission, ...] = ()
        schema = None if self._compiled else join.schema()
        if schema is not None:
            emissions = self._compile(LeafSpec(Form.TABLE, table=schema)).emissions
        merged = join.merge(source_vertex, table)
        self._counters.add((join.operator,), merged.records, 0)
        self._counters.add_late(join.operator, merged.dropped)
        for pairs, has_more in followed(merged.pairs):
            batch = Batch() if pairs is None else self._run(pairs, pairs.num_rows)
            self._counters.add((join.operator,), 0, 0 if pairs is None else pairs.num_rows)
            is_over = is_last and not has_more
            yield Batch(emissions + batch.emissions, batch.reached_sink, has_more=not is_over, is_settled=is_over)
            emissions = ()

    def _fired(self, state: Fires, fire: Callable[[], pa.Table | None]) -> Batch:
        """Emits the results that keyed state fires. fire: None if nothing is due."""
        with self._interruptible():
            self._at = self._layout.first_id
            with blamed(self._layout.keyed):
                fired = fire()
            return Batch() if fired is None else self._put_out(state, fired)

    def _put_out(self, state: Fires, fired: pa.Table) -> Batch:
        assert self._layout.keyed is not None
        # a restored subtask may get the end of its input before any record
        prologue = () if self._compiled else self._compile_behind(state)
        self._counters.add((self._layout.keyed,), 0, fired.num_rows)
        batch = self._run_if_any(fired)
        return Batch(
            prologue + batch.emissions, batch.reached_sink, has_more=state.has_more, is_settled=state.is_settled
        )

    def _run_if_any(self, table: pa.Table) -> Batch:
        """A table through stages and outputs; an empty one without a Spark job."""
        return self._run(table, table.num_rows) if table.num_rows else Batch()

    def _run(self, value: Content, rows: int) -> Batch:
        """A batch through stages and outputs. rows: its number of records."""
        reached, dead_letters = 0, tuple[Emission, ...]()
        last = self._layout.stages[-1] if self._layout.stages else None
        for stage in self._layout.stages:
            self._call.require_live()
            self._at = id_of(stage)
            if isinstance(stage, SinkStage):
                stage.sink.write(value)
                reached += rows
                self._counters.add((stage.operator,), rows, rows)
            else:
                outcome = stage.run(value, self._call.require_live)
                self._call.require_live()
                dead_letters += sum((self._skipped(*failure) for failure in outcome.failed), ())
                if stage is last:
                    pieces = list(map(self._outputs.emit, outcome.tables))  # partial aggregates cannot be concatenated
                    self._counters.add(stage.operators, rows, sum(put_out for _, put_out in pieces))
                    return Batch(dead_letters + sum((emissions for emissions, _ in pieces), ()), reached)
                value = pa.concat_tables(outcome.tables)
                self._counters.add(stage.operators, rows, value.num_rows)
                rows = value.num_rows
        return Batch(dead_letters + self._outputs.emit(value)[0], reached)

    def _skipped(self, operator: Operator, failed: pa.Table | None) -> tuple[Emission, ...]:
        """Counts the records that an operator has skipped; returns their dead letters."""
        if failed is None:
            return ()
        self._counters.add_failed(operator, failed.num_rows)
        return self._dead.emit(operator, failed)

    def _accept(self, source_vertex: str, schema: pa.Schema) -> tuple[Emission, ...]:
        """Compiles for the first schema received; refuses another schema. Returns the prologue, the first time."""
        if self._input is not None:
            require_same(self._input, (source_vertex, schema), self._context.subtask.vertex_id)
            return ()
        self._input = (source_vertex, plain(schema))
        keyed = self._layout.keyed
        if keyed is None or self._stores is None:
            return self._compile(LeafSpec(Form.TABLE, table=self._input[1])).emissions
        if self._state is None:
            with naming(keyed):
                self._state = self._stores.fresh(schema)
            if isinstance(self._state, ProcessingTimeStore):
                self._state.tick(self._unix_ms)  # nothing is due in it; the next merge uses this time
        elif isinstance(self._state, ProcessingTimeStore):
            self._state.set_input_schema(schema)
        else:
            stored = (f"the restored state of {named(keyed)}", self._state.partial_schema)
            require_same(stored, (source_vertex, schema), self._context.subtask.vertex_id)
        return self._compile_behind(self._state)

    def _event_time_after(self, reading: Reading | None) -> Watermark | None:
        """The change of event time after a batch of the source, or after an empty poll."""
        source, known = self._layout.source, self._event_time
        if known is None or source is None:
            return None
        now_ms = int(time.monotonic() * 1000)
        if reading is not None:
            known.read(reading.split, reading.ended, self._layout.times().highest_ms, now_ms)
        return known.news(now_ms, lambda: source.backlog(now_ms))

    def _waiting(self, rest: Idle | Exhausted, prologue: tuple[Emission, ...] = ()) -> Poll:
        """The result of a poll without input: pending event time or prologue, otherwise idle."""
        news = None if isinstance(rest, Exhausted) else self._event_time_after(None)
        return Batch(prologue, watermark=news) if prologue or news else rested(rest, self._layout.event_time)

    def _take(self, splits: Sequence[SplitState], complete: bool) -> None:
        """Splits from a snapshot, or from the leader."""
        assert self._layout.source is not None, "only sources have splits"
        self._layout.source.assign(splits, complete)
        if self._event_time is not None:
            self._event_time.assign(splits)

    def _compile_behind(self, state: KeyedStore) -> tuple[Emission, ...]:
        """Compiles the stages after the keyed state; returns the prologue of every output."""
        emissions = self._compile(LeafSpec(Form.TABLE, table=state.schema)).emissions
        late = state.late_schema if isinstance(state, PassesLateRecords) else state.schema
        self._late.compile(late, is_fused=False)
        return emissions + self._late.prologue()

    def _compile(self, spec: LeafSpec) -> Batch:
        schema = spec.table
        stages = self._layout.stages
        fused = self._outputs.fused() if stages and isinstance(stages[-1], SparkStage) else None
        for stage in stages:
            self._at = id_of(stage)
            if isinstance(stage, SinkStage):
                stage.sink.prepare(schema)
            else:
                schema = stage.compile(spec, fused if stage is stages[-1] else None)
            spec = LeafSpec(Form.TABLE, table=schema)
        self._outputs.compile(schema, is_fused=bool(stages) and isinstance(stages[-1], SparkStage))
        self._compiled = True
        prologue = self._outputs.prologue() + self._dead.compile()
        self.irreproducible = self._layout.irreproducible(self._outputs, *self._dead.outputs())
        return Batch(prologue)

    def _restore_keyed(self, states: Sequence[OperatorState]) -> None:
        """State of one operator; from one subtask, or from several that held its key groups."""
        if not states:
            return
        if self._join is not None:
            self._join.restore(states, self._context.restored_checkpoint_id)
            return
        if self._stores is None:
            raise StateUnreadable(
                f"the state of operator {states[0].operator_id} is keyed, and the job has no keyed operator"
            )
        self._state = self._stores.restored(states, self._context.restored_checkpoint_id)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """For code that may run Spark jobs, see RunningCall. Notes the operator that has failed."""
        try:
            with self._call.running():
                yield
        except DataError as error:
            if error.operator_id:
                self._at, self._column = error.operator_id, error.column
            raise
