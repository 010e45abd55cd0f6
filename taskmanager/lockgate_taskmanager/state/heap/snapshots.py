"""Snapshots of state in memory: full files, and increments on the newest snapshot that is certainly complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.state.chains import Chain, Chains
from lockgate_taskmanager.state.format.increments import Increment


class Frozen(Protocol):
    """A consistent copy of state in memory. It can be written on any thread while the state changes.

    version: rises with every copy.
    """

    @property
    def version(self) -> int: ...

    def to_buffer(self) -> pa.Buffer:
        """The snapshot file's bytes."""
        ...

    def increment(self, since: int) -> Increment | None:
        """What has changed since that version; None when a full snapshot is better."""
        ...

    def release(self) -> None:
        """The bytes are written, or will not be: the state need not set values aside for this snapshot any more."""
        ...


@dataclass(frozen=True, slots=True)
class FrozenHeap:
    """The FrozenStore of a store in memory. base: what it may build on; is_shared: a later one may build on this.

    piece: which one it is where an operator has several stores, each with its own chains; later: the stores that are
    stored after it, whose full snapshots need room as well.
    """

    operator_id: str
    frozen: Frozen
    chains: Chains
    base: Chain | None
    is_shared: bool
    piece: str = ""
    later: Sequence[FrozenHeap] = ()

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """Stores an increment, or a full snapshot if an increment saves nothing. Raises SnapshotTooLarge, OSError."""
        handles = self._store_increment(writer) or self._store_full(writer)
        if self.is_shared:
            self.chains.stored(checkpoint_id, Chain(self.frozen.version, without_bytes(handles)))
        return OperatorState(self.operator_id, StateKind.KEYED_STATE, handles[0], handles[1:])

    def release(self) -> None:
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
        if together > full or not writer.has_room(full + together, self._later_bytes):
            return ()
        self.release()
        taken_over = [writer.take_over(handle) for handle in self.base.handles]
        mine = self._store(made.data, writer)
        return (*taken_over, replace(mine, diff_values=made.diff_values, diff_saved_bytes=made.diff_saved_bytes))

    def _later_bytes(self) -> int:
        return sum(frozen.frozen.to_buffer().size for frozen in self.later)

    def _store_full(self, writer: SnapshotWriter) -> tuple[StateHandle, ...]:
        data = self.frozen.to_buffer()
        self.release()
        return (self._store(data, writer),)

    def _store(self, data: pa.Buffer, writer: SnapshotWriter) -> StateHandle:
        name = f"{self.operator_id}-{self.piece}" if self.piece else self.operator_id
        return replace(writer.store(name, data, is_shared=self.is_shared), name=self.piece)


def handles_of(state: OperatorState) -> tuple[StateHandle, ...]:
    """The pieces of an operator's state: the full one, then the increments."""
    return (state.handle or StateHandle(), *state.increments)


def without_bytes(handles: Sequence[StateHandle]) -> tuple[StateHandle, ...]:
    """The handles as an increment on them refers to them, without inline bytes."""
    return tuple(replace(handle, inline=b"") for handle in handles)
