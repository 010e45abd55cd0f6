"""Keyed state in memory: what the backends `memory` and `filesystem` work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from taskmanager.state import stored
from taskmanager.state.backend import SnapshotWriter, load
from taskmanager.state.chains import Chain, Chains
from taskmanager.state.increments import Increment, latest
from taskmanager.state.keyed import KeyedState
from taskmanager.state.store import Merged, StoreSpec
from taskmanager.task.program import SnapshotOrder, StateUnreadable


class HeapStore:
    """See KeyedStore. A snapshot is a full file, or an increment on the newest one that is certainly complete."""

    def __init__(self, spec: StoreSpec, schema: pa.Schema, full_every: int) -> None:
        """schema: of the partial tables. Raises UserError when a column or type does not fit."""
        self._spec = spec
        self._chains = Chains(full_every)
        self._state = KeyedState(
            spec.aggregation,
            schema,
            spec.max_parallelism,
            is_tracked=self._chains.is_incremental,
            owned=spec.key_groups,
        )
        self.schema = self._state.schema
        self.partial_schema = self._state.partial_schema

    @classmethod
    def restored(
        cls, spec: StoreSpec, states: Sequence[OperatorState], checkpoint_id: int, full_every: int
    ) -> HeapStore:
        """From what one or several subtasks have stored in a checkpoint. Raises StateUnreadable, OSError, UserError."""
        chains = pieces_of(spec, states)
        store = cls(spec, chains[0][0].partial_schema, full_every)
        store._state.restore([latest(chain, len(spec.aggregation.keys)) for chain in chains])
        take_up(store._chains, checkpoint_id, states, chains, spec.key_groups)
        return store

    def merge(self, partial: pa.Table) -> Merged:
        """See KeyedStore."""
        return self._state.merge(partial)

    def snapshot(self, order: SnapshotOrder) -> FrozenHeap:
        """See KeyedStore. Microseconds."""
        return frozen_heap(self._spec.operator_id, self._state.freeze(), self._chains, order)

    def close(self) -> None:
        """See KeyedStore. There is nothing but memory."""


class Frozen(Protocol):
    """A consistent copy of state in memory. What it makes may be made on any thread while the state changes.

    version: rises with every copy.
    """

    @property
    def version(self) -> int:
        """See above."""
        ...

    def to_buffer(self) -> pa.Buffer:
        """The snapshot file's bytes."""
        ...

    def increment(self, since: int) -> Increment | None:
        """What has changed since that version; None when a full snapshot is better."""
        ...

    def release(self) -> None:
        """The bytes are made (or will not be): the state need not copy for this snapshot any more."""
        ...


@dataclass(frozen=True, slots=True)
class FrozenHeap:
    """See FrozenStore. base: what it may build on; is_shared: a later one may build on this.

    piece: which one it is where an operator has several, which know chains of their own; besides: bytes that a full
    snapshot of those takes that are stored after it, asked where room is short.
    """

    operator_id: str
    frozen: Frozen
    chains: Chains
    base: Chain | None
    is_shared: bool
    piece: str = ""
    besides: Callable[[], int] = lambda: 0

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """See FrozenStore. An increment that saves nothing becomes a full snapshot."""
        handles = self._store_increment(writer) or self._store_full(writer)
        if self.is_shared:
            self.chains.stored(checkpoint_id, Chain(self.frozen.version, without_bytes(handles)))
        return OperatorState(self.operator_id, StateKind.KEYED_STATE, handles[0], handles[1:])

    def release(self) -> None:
        """See FrozenStore."""
        self.frozen.release()

    def _store_increment(self, writer: SnapshotWriter) -> tuple[StateHandle, ...]:
        """The chain with a new increment at its end; nothing when a full snapshot is better."""
        if self.base is None:
            return ()
        made = self.frozen.increment(self.base.version)
        if made is None:
            return ()
        full, *increments = (handle.size_bytes for handle in self.base.handles)
        together = sum(increments) + made.data.size
        if together > full or not writer.has_room(full + together, self.besides):
            return ()
        self.release()
        taken_over = [writer.take_over(handle) for handle in self.base.handles]
        mine = self._store(made.data, writer)
        return (*taken_over, replace(mine, diff_values=made.diff_values, diff_saved_bytes=made.diff_saved_bytes))

    def _store_full(self, writer: SnapshotWriter) -> tuple[StateHandle, ...]:
        data = self.frozen.to_buffer()
        self.release()
        return (self._store(data, writer),)

    def _store(self, data: pa.Buffer, writer: SnapshotWriter) -> StateHandle:
        name = f"{self.operator_id}-{self.piece}" if self.piece else self.operator_id
        return replace(writer.store(name, data, is_shared=self.is_shared), name=self.piece)


def frozen_heap(operator_id: str, frozen: Frozen, chains: Chains, order: SnapshotOrder) -> FrozenHeap:
    """A copy of an operator's state, with what it may build on."""
    return FrozenHeap(operator_id, frozen, chains, chains.base(order), chains.is_incremental and not order.is_savepoint)


def take_up(
    chains: Chains,
    checkpoint_id: int,
    states: Sequence[OperatorState],
    pieces: Sequence[Sequence[stored.Stored]],
    owned: range,
) -> None:
    """The next snapshot may build on what was restored where that was this subtask's own, by the same run.

    pieces: of each state, see `handles_of`; owned: key groups of the subtask.
    """
    is_ours = len(states) == 1 and all(one.owned == owned for one in pieces[0])
    if is_ours and all(handle.checkpoint_id for handle in handles_of(states[0])):
        chains.stored(checkpoint_id, Chain(0, without_bytes(handles_of(states[0]))))


def require_like(operator_id: str, chains: Sequence[Sequence[stored.Stored]]) -> None:
    """Raises StateUnreadable where subtasks have stored different columns."""
    if any(chain[0].schema != chains[0][0].schema for chain in chains):
        raise StateUnreadable(f"the state of operator {operator_id} has other columns in one subtask than another")


def pieces_of(spec: StoreSpec, states: Sequence[OperatorState]) -> list[list[stored.Stored]]:
    """What each of some subtasks has stored of an aggregate, piece by piece. Raises StateUnreadable, OSError."""
    chains = [[_read(spec, handle) for handle in handles_of(state)] for state in states]
    require_like(spec.operator_id, chains)
    return chains


def handles_of(state: OperatorState) -> tuple[StateHandle, ...]:
    """The pieces of an operator's state: the full one, then the increments."""
    return (state.handle or StateHandle(), *state.increments)


def _read(spec: StoreSpec, handle: StateHandle) -> stored.Stored:
    where = handle.path or f"of operator {spec.operator_id} inside the checkpoint"
    return stored.read(
        load(handle),
        where,
        signature=stored.signature(spec.aggregation),
        max_parallelism=spec.max_parallelism,
        wanted=spec.key_groups,
    )


def without_bytes(handles: Sequence[StateHandle]) -> tuple[StateHandle, ...]:
    """What an increment on them has to name."""
    return tuple(replace(handle, inline=b"") for handle in handles)
