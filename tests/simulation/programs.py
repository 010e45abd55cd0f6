"""Simulated operators behind the real SubtaskTask: sources with offsets, transforms, keyed counts, ledgers.

As lockgate_taskmanager.task.program.SubtaskProgram wants them; what they compute stands in flow.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from lockgate_common.backlog import Backlog
from lockgate_proto.codec import decode, encode
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import (
    FileSink,
    FileSource,
    JobGraph,
    KafkaSource,
    KeyedAggregate,
    OperatorCounters,
    OperatorState,
    Partitioning,
    SourceState,
    SplitState,
    SqlSink,
    SqlTransform,
    StateHandle,
    StateKind,
    SubtaskState,
    Watermark,
)
from lockgate_proto.parts import whole_because
from lockgate_taskmanager.spark.sources.catching_up import CatchingUp
from lockgate_taskmanager.spark.sources.reading import Reading, Source
from lockgate_taskmanager.state.chains import Chain, Chains
from lockgate_taskmanager.task.program import (
    AtWork,
    Batch,
    DataError,
    Emission,
    Irreproducible,
    Poll,
    ProgramContext,
    SnapshotOrder,
    SnapshotTooLarge,
    SubtaskProgram,
)
from lockgate_taskmanager.task.watermarks import MIN_WATERMARK

from tests.simulation.flow import (
    RANDOM,
    Model,
    Record,
    input_of,
    key_of,
    owner_of,
    partitions_at,
    records_of,
    splits_of,
    table_of,
)
from tests.simulation.job import FOUND_AT_ONCE
from tests.simulation.sources import SimulatedSource
from tests.simulation.storage import Transaction, checksum_of

if TYPE_CHECKING:
    from tests.simulation.taskmanager import SimulatedTaskManager

FULL_EVERY = 4  # snapshots of the counts
SPLITS_AT_ONCE = 2
REFUSAL = "this record cannot be written"


@dataclass(frozen=True)
class Frozen:
    """A snapshot: per operator what is to be stored. Source states stay inside the acknowledgement."""

    program: Program
    checkpoint_id: int
    parts: tuple[tuple[str, StateKind, Any], ...]
    counters: tuple[OperatorCounters, ...]
    keyed: FrozenCounts | None = None

    def persist(self) -> SubtaskState:
        """Writes the state files and returns the handles. Raises OSError."""
        process, subtask = self.program.host, self.program.context.subtask
        if process.plan.upload_fails(process.world):
            raise OSError("the disk is full")
        found = tuple(
            OperatorState(operator_id=name, kind=kind, handle=self.store(name, kind, content))
            for name, kind, content in self.parts
        )
        if self.keyed is not None:
            found = (self.keyed.persist(self), *found)
        return SubtaskState(subtask.vertex_id, subtask.subtask, found, self.counters)

    def release(self) -> None: ...

    def store_shared(self, name: str, content: Any) -> StateHandle:
        """Writes a file that later snapshots may refer to."""
        path = f"shared/{self.checkpoint_id}-{self._prefix}-{name}.state"
        return self._write(path, content, checkpoint_id=self.checkpoint_id, shared=True)

    def store(self, name: str, kind: StateKind, content: Any) -> StateHandle:
        """Writes a file of this snapshot alone."""
        if kind is StateKind.SOURCE_STATE:
            return StateHandle(inline=content, size_bytes=len(content))
        return self._write(f"chk-{self.checkpoint_id}/{self._prefix}-{name}.state", content)

    @property
    def _prefix(self) -> str:
        subtask = self.program.context.subtask
        return f"a{self.program.attempt}-{subtask.vertex_id}-{subtask.subtask}"

    def _write(self, name: str, content: Any, **fields: Any) -> StateHandle:
        path = f"{self.program.context.checkpoint_directory}/{name}"
        self.program.host.point("before a state file")
        self.program.host.storage.write(path, content)
        self.program.host.point("after a state file")
        handle = StateHandle(path=path, size_bytes=1, checksum=checksum_of(content), **fields)
        attempt = self.program.context.subtask.attempt
        if self.program.model.graph.standby_replicas and attempt is not None:
            self.program.host.stored(attempt.run_id, self.checkpoint_id, handle, content)
        return handle


@dataclass(frozen=True)
class FrozenCounts:
    """Keyed state at a barrier: the real chains of full snapshots and increments, of simulated content."""

    name: str
    counts: dict[int, tuple[int, int]]
    changed_at: dict[int, int]
    version: int
    chains: Chains
    base: Chain | None
    is_savepoint: bool

    def persist(self, frozen: Frozen) -> OperatorState:
        """Writes what has changed since the base, or everything."""
        if self.is_savepoint:
            handle = frozen.store(self.name, StateKind.KEYED_STATE, tuple(sorted(self.counts.items())))
            return OperatorState(self.name, StateKind.KEYED_STATE, handle)
        since = self.base.version if self.base is not None else -1
        changed = {key: value for key, value in self.counts.items() if self.changed_at[key] > since}
        handles = (*(self.base.handles if self.base else ()), frozen.store_shared(self.name, tuple(changed.items())))
        self.chains.stored(frozen.checkpoint_id, Chain(self.version, handles))
        return OperatorState(self.name, StateKind.KEYED_STATE, handles[0], handles[1:])


class Program:
    """A transform, and the base of the others: counters, the reading of restored state, the ways out."""

    is_source = is_behind = False
    irreproducible = ""

    def __init__(self, process: SimulatedTaskManager, context: ProgramContext, model: Model) -> None:
        assert context.subtask.attempt is not None
        self.host, self.context, self.model = process, context, model
        self.vertex = model.vertices[context.subtask.vertex_id]
        self.operators = tuple(operator.id for operator in self.vertex.operators)
        self.job, self.attempt = context.subtask.attempt.job_key, context.subtask.attempt.attempt
        self.me, self.parallelism = context.subtask.subtask, context.parallelism[self.vertex.id]
        self.records_in = self.records_out = 0
        self._targets = {
            number: (spread_of(edge), context.parallelism[edge.target])
            for number, edge in enumerate(model.graph.edges)
            if edge.source == self.vertex.id
        }
        self._broadcast = {
            edge.source
            for edge in model.graph.edges
            if edge.target == self.vertex.id and edge.partitioning is Partitioning.BROADCAST
        }
        self._turn = 0
        self._event_time = MIN_WATERMARK

    def open(self) -> Batch:
        """See SubtaskProgram. Raises StateUnreadable."""
        restore = self.context.restore
        if restore is not None:
            for counter in restore.counters:
                if counter.operator_id == self.operators[0]:
                    self.records_in, self.records_out = counter.records_in, counter.records_out
            for state in restore.operators:
                for handle in (state.handle, *state.increments):
                    assert handle is not None
                    self.load(state, self.host.read(handle) if handle.path else handle.inline)
        return self._prologue() if self.is_source else Batch()

    def load(self, state: OperatorState, content: Any) -> None:
        """Takes over one piece of an operator's restored state."""

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        raise AssertionError(f"splits are for sources: {splits}, {complete}")

    def poll(self) -> Poll:
        raise AssertionError("only sources are polled")

    def process_records(self, records: list[Record]) -> list[Record]:
        """Takes a batch and returns what goes on."""
        return [made for record in records for made in self.model.made_of(self.vertex.id, record)]

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        """See SubtaskProgram. Of what is broadcast each subtask takes what it would be given by key."""
        if not table.num_rows:
            return self._prologue()
        records = records_of(table)
        if source_vertex in self._broadcast:
            records = [record for record in records if owner_of(key_of(record), self.parallelism) == self.me]
        if late := [record for record in records if record[1] < self._event_time]:
            raise AssertionError(f"{late} came to {self.vertex.id}[{self.me}] after the watermark {self._event_time}")
        self.records_in += len(records)
        onwards = self.process_records(records)
        self.records_out += len(onwards)
        return Batch(self._emissions(onwards), reached_sink=0 if self._targets else len(records))

    def advance(self, watermark_ms: int) -> Batch:
        self._event_time = watermark_ms
        return Batch()

    def tick(self, unix_ms: int) -> Batch:  # noqa: ARG002
        return Batch()

    def place(self) -> None:
        return

    def at_work(self) -> AtWork | None:
        return None

    def wakes_at(self) -> int | None:
        return None

    def warm_up(self) -> None: ...

    def finish(self) -> Batch:
        return Batch()

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder = SnapshotOrder()) -> Frozen:  # noqa: B008
        """See SubtaskProgram. Raises SnapshotTooLarge."""
        if self.host.plan.snapshot_fails(self.host.world):
            raise SnapshotTooLarge("the state is too large")
        parts, keyed = self.freeze(checkpoint_id, order)
        return Frozen(self, checkpoint_id, parts, self.counters(), keyed)

    def freeze(
        self,
        checkpoint_id: int,  # noqa: ARG002
        order: SnapshotOrder,  # noqa: ARG002
    ) -> tuple[tuple[tuple[str, StateKind, Any], ...], FrozenCounts | None]:
        """A consistent copy of everything: what is stored as it is by operator, and keyed state."""
        return (), None

    def commit(self, checkpoint_id: int) -> bool:  # noqa: ARG002
        return False

    def backlog(self) -> Backlog:
        return Backlog()

    def counters(self) -> tuple[OperatorCounters, ...]:
        return (OperatorCounters(self.operators[0], self.records_in, self.records_out),)

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    def _prologue(self) -> Batch:
        empty = table_of([])
        found = [
            Emission(edge, index, empty)
            for edge, (spread, width) in self._targets.items()
            for index in ((self.me,) if spread is Partitioning.FORWARD else range(width))
        ]
        return Batch(tuple(found))

    def _emissions(self, records: list[Record]) -> tuple[Emission, ...]:
        shares: defaultdict[tuple[int, int], list[Record]] = defaultdict(list)
        for record in records:
            for edge, moved in self.model.ways(self.vertex.id, record):
                for target in self._receivers(edge, moved):
                    shares[edge, target].append(moved)
        return tuple(Emission(edge, target, table_of(share)) for (edge, target), share in shares.items())

    def _receivers(self, edge: int, record: Record) -> Sequence[int]:
        spread, width = self._targets[edge]
        if spread is Partitioning.BROADCAST:
            return range(width)
        if spread is Partitioning.HASH:
            turned = self.attempt if self.irreproducible else 0
            return ((owner_of(key_of(record), width) + turned) % width,)
        if spread is Partitioning.FORWARD:
            return (self.me,)
        self._turn += 1
        return (self._turn % width,)


class SourceProgram(Program):
    """Reads its splits, a few records at a time."""

    is_source = True

    def __init__(self, process: SimulatedTaskManager, context: ProgramContext, model: Model) -> None:
        super().__init__(process, context, model)
        if any(operator.kind == SqlTransform(RANDOM) for operator in self.vertex.operators):
            self.irreproducible = "it is random"
        self._has_event_time = not whole_because(model.graph)
        most = SPLITS_AT_ONCE if self._has_event_time else 1
        self.source: Source = SimulatedSource(process.world.random, most)
        if any(context.received):
            self.source = CatchingUp(self.source, lambda: SimulatedSource(process.world.random, most), context.received)

    def open(self) -> Batch:
        """See Program. Raises Irreproducible."""
        opened = super().open()
        if self.irreproducible and self.is_behind:
            raise Irreproducible(self.irreproducible)
        return opened

    @property
    def is_behind(self) -> bool:  # type: ignore[override]
        return isinstance(self.source, CatchingUp) and self.source.is_behind

    def load(self, state: OperatorState, content: Any) -> None:  # noqa: ARG002
        restored = decode(SourceState, content)
        self.source.assign(restored.splits, restored.complete)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        self.source.assign(splits, complete)

    def poll(self) -> Poll:
        reading = self.source.read(0, self.host.world.now_ms)
        if not isinstance(reading, Reading):
            return reading
        records = [
            self.model.record(self.vertex.id, part.split, number)
            for part in reading.ranges
            for number in range(part.start, part.end)
        ]
        self.records_out += len(records)
        emissions = self._emissions(records)
        return Batch(
            emissions,
            watermark=self._watermark(),
            read_rows=len(records),
            read_bytes=len(records),
            ranges=reading.ranges,
        )

    def _watermark(self) -> Watermark | None:
        """Sequences are event times, in jobs of which parts restart. Later splits would be late."""
        offsets = [split.offset for split in self.source.splits() if split.offset < split.end]
        is_known = self._has_event_time and self.source.complete and offsets
        return Watermark(min(offsets)) if is_known else None

    def freeze(
        self,
        checkpoint_id: int,  # noqa: ARG002
        order: SnapshotOrder,  # noqa: ARG002
    ) -> tuple[tuple[tuple[str, StateKind, Any], ...], FrozenCounts | None]:
        source = self.source.inner if isinstance(self.source, CatchingUp) else self.source  # as split_log
        content = encode(SourceState(source.splits(), source.complete))
        return ((self.operators[0], StateKind.SOURCE_STATE, content),), None


class SinkProgram(Program):
    """Base of programs that end in a sink: seals a transaction at each barrier, commits it when notified."""

    def __init__(self, process: SimulatedTaskManager, context: ProgramContext, model: Model) -> None:
        super().__init__(process, context, model)
        self.pending: list[Transaction] = []

    def open(self) -> Batch:
        """See SubtaskProgram; what was sealed in the restored snapshot is committed, perhaps again."""
        prologue = super().open()
        self.commit(self.context.restored_checkpoint_id)
        return prologue

    def seal(self, checkpoint_id: int, rows: tuple[Any, ...]) -> None:
        """Ends the open transaction."""
        self.pending.append(Transaction(self.job, self.vertex.id, checkpoint_id, self.me, self.attempt, rows))

    def commit(self, checkpoint_id: int) -> bool:
        due = [checkpoint for checkpoint in self.pending if checkpoint.checkpoint_id <= checkpoint_id]
        for transaction in due:
            self.make_visible(transaction)
            self.host.point("after a transaction is shown")
            self.pending.remove(transaction)
        return bool(due)

    def make_visible(self, transaction: Transaction) -> None:
        """Commits one transaction; idempotent."""
        raise NotImplementedError


class LedgerProgram(SinkProgram):
    """Append-only transactional files."""

    def __init__(self, process: SimulatedTaskManager, context: ProgramContext, model: Model) -> None:
        super().__init__(process, context, model)
        self.staged: list[Record] = []

    def load(self, state: OperatorState, content: Any) -> None:  # noqa: ARG002
        self.pending += content

    def process_records(self, records: list[Record]) -> list[Record]:
        self.staged += records
        return []

    def freeze(
        self,
        checkpoint_id: int,
        order: SnapshotOrder,  # noqa: ARG002
    ) -> tuple[tuple[tuple[str, StateKind, Any], ...], FrozenCounts | None]:
        self.seal(checkpoint_id, tuple(self.staged))
        self.staged = []
        return ((self.operators[-1], StateKind.SINK_STATE, tuple(self.pending)),), None

    def make_visible(self, transaction: Transaction) -> None:
        self.host.outputs.publish(transaction)


class RefusingProgram(LedgerProgram):
    """A ledger that takes no record, whatever is tried."""

    def process_records(self, records: list[Record]) -> list[Record]:  # noqa: ARG002
        """See Program. Raises DataError."""
        raise DataError(REFUSAL)


class CountProgram(SinkProgram):
    """Counts and sums per key. Changed keys are upserted where a sink follows; else the records go on."""

    def __init__(self, process: SimulatedTaskManager, context: ProgramContext, model: Model) -> None:
        super().__init__(process, context, model)
        self.has_sink = isinstance(self.vertex.operators[-1].kind, SqlSink)
        self.state: dict[int, tuple[int, int]] = {}
        self.changed: set[int] = set()
        self.changed_at: dict[int, int] = {}
        self.has_foreign = False
        self.version = 1
        self.chains = Chains(FULL_EVERY)

    def load(self, state: OperatorState, content: Any) -> None:
        """See Program; the pieces of keyed state come one after the other."""
        if state.kind is not StateKind.KEYED_STATE:
            self.pending += content
            return
        owned = {key: held for key, held in content if owner_of(key, self.parallelism) == self.me}
        self.has_foreign = self.has_foreign or len(owned) < len(content)
        self.state |= owned
        self.changed_at = dict.fromkeys(self.state, 0)

    def open(self) -> Batch:
        """See SinkProgram. Increments build on what is this subtask's alone."""
        prologue = super().open()
        restore = self.context.restore
        keyed = (
            [operator for operator in restore.operators if operator.kind is StateKind.KEYED_STATE] if restore else []
        )
        if len(keyed) == 1 and not self.has_foreign:
            handles = tuple(increment for increment in (keyed[0].handle, *keyed[0].increments) if increment is not None)
            if all(handle.shared for handle in handles):
                self.chains.stored(self.context.restored_checkpoint_id, Chain(0, handles))
        return prologue

    def process_records(self, records: list[Record]) -> list[Record]:
        for record in records:
            key = key_of(record)
            if owner_of(key, self.parallelism) != self.me:
                raise AssertionError(f"{record} came to {self.vertex.id}[{self.me}] of {self.parallelism}")
            count, total = self.state.get(key, (0, 0))
            self.state[key] = (count + 1, total + record[1])
            self.changed.add(key)
            self.changed_at[key] = self.version
        return [] if self.has_sink else records

    def freeze(
        self, checkpoint_id: int, order: SnapshotOrder
    ) -> tuple[tuple[tuple[str, StateKind, Any], ...], FrozenCounts | None]:
        parts: tuple[tuple[str, StateKind, Any], ...] = ()
        if self.has_sink:
            self.seal(checkpoint_id, tuple((key, self.state[key]) for key in sorted(self.changed)))
            self.changed = set()
            parts = ((self.operators[-1], StateKind.SINK_STATE, tuple(self.pending)),)
        keyed = FrozenCounts(
            self.operators[0],
            dict(self.state),
            dict(self.changed_at),
            self.version,
            self.chains,
            self.chains.base(order),
            order.is_savepoint,
        )
        self.version += 1
        return parts, keyed

    def make_visible(self, transaction: Transaction) -> None:
        self.host.outputs.upsert(transaction)


def _key(context: ProgramContext) -> str:
    assert context.subtask.attempt is not None
    return context.subtask.attempt.job_key


class SimulatedPrograms:
    """The lockgate_taskmanager.task.program.ProgramFactory of one simulated process."""

    def __init__(self, process: SimulatedTaskManager) -> None:
        self.host = process

    def build(self, context: ProgramContext) -> SubtaskProgram:
        model = Model(context.graph)
        vertex = model.vertices[context.subtask.vertex_id]
        kinds = {type(operator.kind) for operator in vertex.operators}
        found: type[Program] = Program
        if input_of(vertex) is not None:
            found = SourceProgram
        elif FileSink in kinds:
            found = RefusingProgram if self.host.plan.refusing == _key(context) else LedgerProgram
        elif KeyedAggregate in kinds:
            found = CountProgram
        return cast("SubtaskProgram", found(self.host, context, model))

    def discover(self, graph: JobGraph, vertex_id: str, known: Sequence[str]) -> tuple[tuple[SplitState, ...], bool]:
        vertex = next(vertex for vertex in graph.vertices if vertex.id == vertex_id)
        kind = vertex.operators[0].kind
        if isinstance(kind, KafkaSource):
            return partitions_at(vertex, known, self.host.world.now), bool(known)
        left = [split for split in splits_of(vertex) if split.split not in known]
        found = left[:FOUND_AT_ONCE] if isinstance(kind, FileSource) and kind.continuous else left
        return tuple(found), len(found) == len(left)

    def interrupt_user_code(self, thread: int) -> None:
        """See ProgramFactory. There is no author's code here."""

    def warm_python(self) -> None: ...
