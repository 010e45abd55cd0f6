"""The common part of all aggregate states, with one row for each key, or for each key and window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns, field_of
from lockgate_taskmanager.state.columns.arrays import require_values
from lockgate_taskmanager.state.columns.changes import Changes
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.heap.frozen_rows import FrozenRows
from lockgate_taskmanager.state.heap.heap_store import HeapStore
from lockgate_taskmanager.state.heap.snapshots import FrozenHeap
from lockgate_taskmanager.state.layout import ROWS, counts
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray


class AggregateState(HeapStore):
    """Aggregates in memory: a separate store, or the rows that a database store works on.

    key_count: number of key columns of stored rows.
    """

    _spec: StoreSpec
    key_count: int
    schema: pa.Schema

    def __init__(
        self,
        spec: StoreSpec,
        schema: pa.Schema,
        choice: StateBackend | None = None,
    ) -> None:
        """schema: of the partial table, see `layout`; choice: how snapshots are to be, None where none are taken.

        Raises UserError when a column or type does not fit.
        """
        super().__init__(spec, choice or StateBackend())
        self._operator = spec.stored
        self.partial_schema = schema
        self._keys = pa.schema([field_of(schema, name) for name in self._operator.keys])
        self._columns = self._new_columns()
        self._changes = Changes(self.chains.is_incremental)
        self._results = self._columns.fields[: len(spec.aggregation.aggregates)]

    def snapshot(self, order: SnapshotOrder) -> FrozenHeap:
        """The state as it is now. Takes microseconds."""
        return self._frozen(order, self.freeze())

    def freeze(self) -> FrozenRows:
        """The state as it is now. Takes microseconds whatever its size, or a copy of one byte for each row."""
        raise NotImplementedError

    def restore(self, snapshots: Sequence[state_file.Stored]) -> None:
        rows = state_file.joined(snapshots, self.key_count)
        for parts in rows.parts:
            require_values(parts, *counts(parts.schema.names))
        self.take_up(rows)

    def take_up(self, rows: state_file.StoredRows) -> None:
        """Sets the initial rows."""
        raise NotImplementedError

    def _new_columns(self) -> AggregateColumns:
        return AggregateColumns(self._operator, self.partial_schema)


def records_in(batch: pa.RecordBatch) -> int:
    """How many records are behind the rows of a partial."""
    return int(pc.sum(batch.column(ROWS)).as_py() or 0)
