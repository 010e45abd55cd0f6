"""Which home keyed state gets: the choice that a job graph makes. Windows and joins are in memory, whatever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import OperatorState, RocksdbBackend, StateBackend, StateKind

from taskmanager.state import rocksdb
from taskmanager.state.heap import HeapStore
from taskmanager.state.scratch import ScratchFolder
from taskmanager.state.store import KeyedStore, StoreSpec
from taskmanager.state.window_store import WindowStore

_ROCKSDB_FULL_EVERY = 10
KEYED_KINDS = frozenset({StateKind.KEYED_STATE, StateKind.ROCKSDB_STATE})


def full_every_in_memory(choice: StateBackend | None) -> int:
    """How many snapshots of windows and joins make a chain, see Chains.

    Those of a job whose other state is in RocksDB hold what is new, like that: nobody can say how often they are full.
    """
    if choice is None:
        return 1
    return _ROCKSDB_FULL_EVERY if isinstance(choice.backend, RocksdbBackend) else choice.full_every


class StoreMaker:
    """Makes the stores of one program."""

    def __init__(self, choice: StateBackend | None, scratch: ScratchFolder) -> None:
        """scratch: where databases are kept. Raises UserError when the choice cannot work in this process."""
        self._choice = choice or StateBackend()
        self._scratch = scratch
        if isinstance(self._choice.backend, RocksdbBackend):
            rocksdb.require()

    def fresh(self, spec: StoreSpec, schema: pa.Schema) -> KeyedStore:
        """An empty one. schema: of the partial tables. Raises UserError when a column or type does not fit."""
        if spec.aggregation.window is not None:
            return WindowStore(spec, schema, full_every_in_memory(self._choice))
        backend = self._choice.backend
        if isinstance(backend, RocksdbBackend):
            from taskmanager.state.rocks import RocksStore

            return RocksStore.fresh(spec, schema, self._scratch.new_path(), rocksdb.memory_bytes(backend))
        return HeapStore(spec, schema, self._choice.full_every)

    def restored(self, spec: StoreSpec, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore:
        """One that holds what was stored. Raises StateUnreadable, OSError, UserError."""
        if spec.aggregation.window is not None:
            return WindowStore.restored(spec, states, checkpoint_id, full_every_in_memory(self._choice))
        backend = self._choice.backend
        if isinstance(backend, RocksdbBackend):
            from taskmanager.state.restored_rocks import restored_rocks

            return restored_rocks(spec, states, checkpoint_id, self._scratch.new_path(), rocksdb.memory_bytes(backend))
        rocksdb.refuse(spec.operator_id, states)
        return HeapStore.restored(spec, states, checkpoint_id, self._choice.full_every)


@dataclass(frozen=True, slots=True)
class AggregateStores:
    """See OperatorStores."""

    maker: StoreMaker
    spec: StoreSpec

    def fresh(self, schema: pa.Schema) -> KeyedStore:
        """See OperatorStores."""
        return self.maker.fresh(self.spec, schema)

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore:
        """See OperatorStores."""
        return self.maker.restored(self.spec, states, checkpoint_id)
