"""Simulated operators behind the real SubtaskMachine: a source with offsets, a keyed count, a transactional ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockgate_proto.codec import decode, encode
from lockgate_proto.messages import (
    Deploy,
    OperatorCounters,
    OperatorState,
    SourceState,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskId,
    SubtaskState,
)

from taskmanager.state.chains import Chain, Chains
from taskmanager.task.program import SnapshotOrder
from tests.simulation.storage import Outputs, Record, Storage, Transaction, checksum_of
from tests.simulation.world import World

KEYS = 5
FULL_EVERY = 4  # snapshots of the counts
KEY_GROUPS = 128


def key_of(record: Record) -> int:
    """The key by which records are partitioned and counted."""
    return (record[0] * 31 + record[1] * 7) % KEYS


def owner_of(key: int, parallelism: int) -> int:
    """The subtask that has the key, by the key group that it is in."""
    return key * 53 % KEY_GROUPS * parallelism // KEY_GROUPS


class StateMissing(Exception):
    """A state file of the restored snapshot is not there or not what was written."""


@dataclass(frozen=True)
class Context:
    """What a program is made of."""

    world: World
    storage: Storage
    outputs: Outputs
    subtask: SubtaskId
    operators: tuple[str, ...]
    directory: str
    restore: SubtaskState | None
    restored_id: int
    parallelism: int

    @property
    def job(self) -> str:
        """Key of the job."""
        assert self.subtask.attempt is not None
        return self.subtask.attempt.job_key

    @property
    def attempt(self) -> int:
        """Number of the attempt."""
        assert self.subtask.attempt is not None
        return self.subtask.attempt.attempt


@dataclass(frozen=True)
class Frozen:
    """A snapshot: per operator what is to be stored. Source states stay inside the acknowledgement."""

    context: Context
    checkpoint_id: int
    parts: tuple[tuple[str, StateKind, Any], ...]
    counters: tuple[OperatorCounters, ...]
    keyed: FrozenCounts | None = None

    def persist(self) -> SubtaskState:
        """Writes the state files and returns the handles."""
        context = self.context
        found = tuple(
            OperatorState(operator_id=name, kind=kind, handle=self._store(name, kind, content))
            for name, kind, content in self.parts
        )
        if self.keyed is not None:
            found = (self.keyed.persist(self), *found)
        return SubtaskState(context.subtask.vertex_id, context.subtask.subtask, found, self.counters)

    def store_shared(self, name: str, content: Any) -> StateHandle:
        """Writes a file that later snapshots may refer to."""
        one = self.context
        file = f"{self.checkpoint_id}-a{one.attempt}-{one.subtask.vertex_id}-{one.subtask.subtask}-{name}.state"
        path = f"{one.directory}/shared/{file}"
        one.storage.write(path, content)
        return StateHandle(
            path=path, size_bytes=1, checksum=checksum_of(content), checkpoint_id=self.checkpoint_id, shared=True
        )

    def _store(self, name: str, kind: StateKind, content: Any) -> StateHandle:
        if kind is StateKind.SOURCE_STATE:
            return StateHandle(inline=content, size_bytes=len(content))
        one = self.context
        file = f"a{one.attempt}-{one.subtask.vertex_id}-{one.subtask.subtask}-{name}.state"
        path = f"{one.directory}/chk-{self.checkpoint_id}/{file}"
        one.storage.write(path, content)
        return StateHandle(path=path, size_bytes=1, checksum=checksum_of(content))


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
            handle = frozen._store(self.name, StateKind.KEYED_STATE, tuple(sorted(self.counts.items())))
            return OperatorState(self.name, StateKind.KEYED_STATE, handle)
        since = self.base.version if self.base is not None else -1
        changed = {key: value for key, value in self.counts.items() if self.changed_at[key] > since}
        handles = (*(self.base.handles if self.base else ()), frozen.store_shared(self.name, tuple(changed.items())))
        self.chains.stored(frozen.checkpoint_id, Chain(self.version, handles))
        return OperatorState(self.name, StateKind.KEYED_STATE, handles[0], handles[1:])


class Program:
    """Base: counters and the reading of restored state."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.records_in = self.records_out = 0

    def open(self) -> None:
        """Restores. Raises StateMissing."""
        restore = self.context.restore
        if restore is None:
            return
        for one in restore.counters:
            if one.operator_id == self.context.operators[0]:
                self.records_in, self.records_out = one.records_in, one.records_out
        for state in restore.operators:
            for handle in (state.handle, *state.increments):
                assert handle is not None
                self.load(state, self._read(handle))

    def _read(self, handle: StateHandle) -> Any:
        if not handle.path:
            return handle.inline
        content = self.context.storage.files.get(handle.path)
        if content is None or checksum_of(content) != handle.checksum:
            raise StateMissing(f"{handle.path} is missing or corrupt")
        return content

    def load(self, state: OperatorState, content: Any) -> None:
        """Takes over one operator's restored state."""

    def process(self, records: list[Record]) -> list[Record]:
        """Takes a batch and returns what goes on."""
        self.records_in += len(records)
        self.records_out += len(records)
        return records

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> Frozen:  # noqa: ARG002
        """A consistent copy of everything."""
        return Frozen(self.context, checkpoint_id, (), self.counters())

    def commit(self, checkpoint_id: int) -> None:
        """Makes what is sealed up to the checkpoint visible."""

    def counters(self) -> tuple[OperatorCounters, ...]:
        """Records in and out since the job's start."""
        return (OperatorCounters(self.context.operators[0], self.records_in, self.records_out),)


class SourceProgram(Program):
    """Reads its splits, a few records at a time."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.splits: dict[str, SplitState] = {}
        self.complete = False

    def load(self, state: OperatorState, content: Any) -> None:  # noqa: ARG002
        """See Program."""
        restored = decode(SourceState, content)
        self.splits = {one.split: one for one in restored.splits}
        self.complete = restored.complete

    def assign(self, splits: tuple[SplitState, ...], complete: bool) -> None:
        """Adds splits, unknown before."""
        for one in splits:
            if one.split in self.splits:
                raise AssertionError(f"split {one.split} was assigned twice")
            self.splits[one.split] = one
        self.complete = self.complete or complete

    def poll(self) -> list[Record] | None:
        """The next records; [] when there is nothing now, None at the end of the input."""
        open_splits = [one for one in self.splits.values() if one.offset < one.end]
        if not open_splits:
            return None if self.complete else []
        world = self.context.world
        split = open_splits[world.random.randrange(len(open_splits))]
        end = min(split.end, split.offset + world.random.randint(2, 6))
        self.splits[split.split] = SplitState(split.split, end, split.end)
        records = [(int(split.split), sequence) for sequence in range(split.offset, end)]
        self.records_out += len(records)
        return records

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> Frozen:  # noqa: ARG002
        """See Program."""
        content = encode(SourceState(tuple(self.splits.values()), self.complete))
        parts = ((self.context.operators[0], StateKind.SOURCE_STATE, content),)
        return Frozen(self.context, checkpoint_id, parts, self.counters())


class SinkProgram(Program):
    """Base of programs that end in a sink: seals a transaction at each barrier, commits it when told."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.pending: list[Transaction] = []

    def open(self) -> None:
        """See Program; what was sealed in the restored snapshot is committed, perhaps again."""
        super().open()
        self.commit(self.context.restored_id)

    def seal(self, checkpoint_id: int, rows: tuple[Any, ...]) -> None:
        """Ends the open transaction."""
        one = self.context
        self.pending.append(Transaction(one.job, checkpoint_id, one.subtask.subtask, one.attempt, rows))

    def commit(self, checkpoint_id: int) -> None:
        """See Program."""
        for one in [one for one in self.pending if one.checkpoint_id <= checkpoint_id]:
            self.make_visible(one)
            self.pending.remove(one)

    def make_visible(self, transaction: Transaction) -> None:
        """Commits one transaction; idempotent."""
        raise NotImplementedError


class LedgerProgram(SinkProgram):
    """Append-only transactional files."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.staged: list[Record] = []

    def load(self, state: OperatorState, content: Any) -> None:  # noqa: ARG002
        """See Program."""
        self.pending += content

    def process(self, records: list[Record]) -> list[Record]:
        """See Program."""
        self.staged += records
        self.records_in += len(records)
        return []

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> Frozen:  # noqa: ARG002
        """See Program."""
        self.seal(checkpoint_id, tuple(self.staged))
        self.staged = []
        parts = ((self.context.operators[0], StateKind.SINK_STATE, tuple(self.pending)),)
        return Frozen(self.context, checkpoint_id, parts, self.counters())

    def make_visible(self, transaction: Transaction) -> None:
        """See SinkProgram."""
        self.context.outputs.publish(transaction)


class CountProgram(SinkProgram):
    """Counts and sums per key, changed keys are upserted."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
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
        one = self.context
        owned = {key: held for key, held in content if owner_of(key, one.parallelism) == one.subtask.subtask}
        self.has_foreign = self.has_foreign or len(owned) < len(content)
        self.state |= owned
        self.changed_at = dict.fromkeys(self.state, 0)

    def open(self) -> None:
        """See SinkProgram. Increments build on what is this subtask's alone."""
        super().open()
        restore = self.context.restore
        keyed = [one for one in restore.operators if one.kind is StateKind.KEYED_STATE] if restore else []
        if len(keyed) == 1 and not self.has_foreign:
            handles = tuple(one for one in (keyed[0].handle, *keyed[0].increments) if one is not None)
            if all(one.shared for one in handles):
                self.chains.stored(self.context.restored_id, Chain(0, handles))

    def process(self, records: list[Record]) -> list[Record]:
        """See Program."""
        for record in records:
            key = key_of(record)
            count, total = self.state.get(key, (0, 0))
            self.state[key] = (count + 1, total + record[1])
            self.changed.add(key)
            self.changed_at[key] = self.version
        self.records_in += len(records)
        return []

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> Frozen:
        """See Program."""
        self.seal(checkpoint_id, tuple((key, self.state[key]) for key in sorted(self.changed)))
        self.changed = set()
        count, sink = self.context.operators
        keyed = FrozenCounts(
            count,
            dict(self.state),
            dict(self.changed_at),
            self.version,
            self.chains,
            self.chains.base(order),
            order.is_savepoint,
        )
        self.version += 1
        parts = ((sink, StateKind.SINK_STATE, tuple(self.pending)),)
        return Frozen(self.context, checkpoint_id, parts, self.counters(), keyed)

    def make_visible(self, transaction: Transaction) -> None:
        """See SinkProgram."""
        self.context.outputs.upsert(transaction)


KINDS: dict[str, type[Program]] = {
    "source": SourceProgram,
    "spread": Program,
    "count": CountProgram,
    "ledger": LedgerProgram,
}
"""Vertex id to what runs in it."""


def build(world: World, storage: Storage, outputs: Outputs, deploy: Deploy, subtask: SubtaskId) -> Program:
    """The program of one subtask of a deployment."""
    assert deploy.graph is not None
    vertex = next(one for one in deploy.graph.vertices if one.id == subtask.vertex_id)
    key = (subtask.vertex_id, subtask.subtask)
    restore = next((one for one in deploy.restore if (one.vertex_id, one.subtask) == key), None)
    context = Context(
        world,
        storage,
        outputs,
        subtask,
        tuple(one.id for one in vertex.operators),
        deploy.checkpoint_directory,
        restore,
        deploy.restored_checkpoint_id,
        vertex.parallelism,
    )
    return KINDS[subtask.vertex_id](context)
