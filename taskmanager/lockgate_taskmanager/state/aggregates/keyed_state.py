"""Keyed aggregate state of one subtask: folds partial aggregates, freezes in microseconds.

    partial table --merge--> changed keys with their new values
                  --freeze-> FrozenRows --to_buffer (background)--> Arrow IPC file, one record batch a key group

Freezing copies nothing: the numpy columns are handed to the snapshot, and the first merge after it copies a column
before it writes into it, unless the snapshot has been written by then.
"""

from __future__ import annotations

import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.aggregates.aggregate_state import AggregateState, records_in
from lockgate_taskmanager.state.columns.arrays import numpy_of, one_batch
from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.heap.frozen_rows import FrozenRows
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import Merged


class KeyedState(AggregateState):
    """Keys of the subtask's key groups with their aggregates. Used from the subtask's own thread."""

    def __init__(self, spec: StoreSpec, schema: pa.Schema, choice: StateBackend | None = None) -> None:
        super().__init__(spec, schema, choice)
        self._index = KeyIndex(self._keys)
        self.key_count = len(self._keys)
        self.schema = pa.schema([*self._keys, *self._results])

    def __len__(self) -> int:
        return len(self._index)

    def merge(self, partial: pa.Table) -> Merged:
        """Folds a partial table. Cost grows with its rows, not with the keys held. Raises DataError on overflow."""
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        batch = one_batch(partial)
        keys = batch.select(self._keys.names)
        rows = self._index.rows_of(keys, numpy_of(batch, HASH))
        self._columns.reserve(len(self._index))
        self._changes.mark(rows, len(self._index))
        last = self._columns.fold(rows, batch)
        if last is not None:
            keys, rows = keys.take(pa.array(last)), rows[last]
        changed = pa.Table.from_arrays([*keys.columns, *self._columns.results(rows)], schema=self.schema)
        return Merged(records_in(batch), changed)

    def freeze(self) -> FrozenRows:
        reader, count = Freeze(), len(self._index)
        return FrozenRows(
            keys=self._index.frozen(),
            hashes=self._index.hashes,
            columns=self._columns.freeze(count, reader),
            about=self._spec.about(self.partial_schema),
            changed=self._changes.freeze(count),
            reader=reader,
        )

    def take_up(self, rows: state_file.StoredRows) -> None:
        self._index.restore(rows.keys, rows.hashes)
        self._columns.restore(rows.parts)
        self._changes.restored(len(self._index))
