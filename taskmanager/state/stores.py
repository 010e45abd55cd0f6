"""Which home keyed state gets: the choice that a job graph makes."""

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

KEYED_KINDS = frozenset({StateKind.KEYED_STATE, StateKind.ROCKSDB_STATE})


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
        backend = self._choice.backend
        if isinstance(backend, RocksdbBackend):
            from taskmanager.state.databases import fresh_database

            return fresh_database(spec, schema, self._scratch.new_path(), rocksdb.memory_bytes(backend))
        home = HeapStore if spec.aggregation.window is None else WindowStore
        return home(spec, schema, self._choice.full_every)

    def restored(self, spec: StoreSpec, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore:
        """One that holds what was stored. Raises StateUnreadable, OSError, UserError."""
        backend = self._choice.backend
        if isinstance(backend, RocksdbBackend):
            from taskmanager.state.databases import restored_database

            path, memory_bytes = self._scratch.new_path(), rocksdb.memory_bytes(backend)
            return restored_database(spec, states, checkpoint_id, path, memory_bytes)
        rocksdb.refuse(spec.operator_id, states)
        home = HeapStore if spec.aggregation.window is None else WindowStore
        return home.restored(spec, states, checkpoint_id, self._choice.full_every)


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
