"""Which home rows by key get: the choice that a job graph makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import OperatorState, RocksdbBackend, StateBackend

from taskmanager.state import rocksdb
from taskmanager.state.increments import latest
from taskmanager.state.row_heap import RowHeap
from taskmanager.state.row_store import RowSpec, RowStore
from taskmanager.state.scratch import ScratchFolder
from taskmanager.state.stored import Stored


@dataclass(frozen=True, slots=True)
class RowStores:
    """Makes the row stores of one program. scratch: where databases are kept."""

    choice: StateBackend
    scratch: ScratchFolder

    def without_diffs(self) -> RowStores:
        """The same for payloads that are empty, whatever the job's author has asked for."""
        return replace(self, choice=replace(self.choice, binary_diff=False))

    def fresh(self, spec: RowSpec, record_schema: pa.Schema) -> RowStore:
        """An empty one. Raises UserError when a key does not fit, or the backend is not installed."""
        backend = self.choice.backend
        if isinstance(backend, RocksdbBackend):
            rocksdb.require()
            from taskmanager.state.row_rocks import RowRocks

            return RowRocks(spec, record_schema, self.scratch.new_path(), rocksdb.memory_bytes(backend))
        return RowHeap(spec, record_schema, self.choice)

    def restored(self, spec: RowSpec, states: Sequence[OperatorState], checkpoint_id: int) -> RowStore:
        """One that holds what was stored. Raises StateUnreadable, OSError, UserError."""
        backend = self.choice.backend
        if isinstance(backend, RocksdbBackend):
            rocksdb.require()
            from taskmanager.state.restored_rocks import Restore
            from taskmanager.state.row_rocks import RowRocks

            def make(schema: pa.Schema, folder: Path, memory_bytes: int) -> RowRocks:
                return RowRocks(spec, schema, folder, memory_bytes)

            def together(chain: Sequence[Stored]) -> Stored:
                return latest(chain, len(spec.keys))

            mine = (spec.operator_id, spec.signature, spec.max_parallelism, spec.key_groups)
            restore = Restore(*mine, make, together)
            return restore.run(states, checkpoint_id, self.scratch.new_path(), rocksdb.memory_bytes(backend))
        rocksdb.refuse(spec.operator_id, states)
        return RowHeap.restored(spec, states, checkpoint_id, self.choice)
