"""The common part of every store in memory: its snapshots, and the restore from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateBackend

from lockgate_taskmanager.state.backend import load
from lockgate_taskmanager.state.chains import Chain, Chains
from lockgate_taskmanager.state.format.state_file import Stored
from lockgate_taskmanager.state.heap.snapshots import Frozen, FrozenHeap, handles_of, without_bytes
from lockgate_taskmanager.state.spec import StateSpec
from lockgate_taskmanager.task.program import SnapshotOrder


class HeapStore:
    """A store in memory. Used from the subtask's own thread. chains: the snapshots that increments may build on."""

    _spec: StateSpec

    def __init__(self, spec: StateSpec, choice: StateBackend) -> None:
        """choice: how snapshots are to be."""
        self._spec = spec
        self.chains = Chains(choice.full_every)

    def restore(self, snapshots: Sequence[Stored]) -> None:
        """Replaces the state by that of one or several subtasks. Call once, before the first rows."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to release but memory."""

    def _frozen(self, order: SnapshotOrder, frozen: Frozen) -> FrozenHeap:
        """A copy of the state, with the snapshot that it may build on."""
        is_shared = self.chains.is_incremental and not order.is_savepoint
        return FrozenHeap(self._spec.operator_id, frozen, self.chains, self.chains.base(order), is_shared)


S = TypeVar("S", bound=HeapStore)


def restored(spec: StateSpec, make: Callable[[pa.Schema], S], states: Sequence[OperatorState], checkpoint_id: int) -> S:
    """A store with the state of one or several subtasks. Raises StateUnreadable, OSError, UserError.

    make: creates an empty store from the stored schema. The next snapshot may build on the restored one if this subtask
    stored it in the same run.
    """
    chains = [[spec.read(load(handle), spec.where(handle)) for handle in handles_of(state)] for state in states]
    if any(chain[0].schema != chains[0][0].schema for chain in chains):
        raise spec.other_columns()
    store = make(chains[0][0].about.partial_schema)
    handles = handles_of(states[0])
    is_ours = len(states) == 1 and all(piece.about.owned == spec.key_groups for piece in chains[0])
    if is_ours and all(handle.checkpoint_id for handle in handles):
        store.chains.stored(checkpoint_id, Chain(0, without_bytes(handles)))
    store.restore([spec.latest(chain) for chain in chains])
    return store
