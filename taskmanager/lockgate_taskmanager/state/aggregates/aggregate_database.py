"""Aggregates by key in a RocksDB database on the task manager's disk, limited only by the disk.

The layout is that of `key_table`; the parts are those of the aggregates. A micro-batch costs one read of its keys, a
fold in Arrow and numpy, and one write, however much the store holds. For barriers see `barrier_buffered_database`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import KeyedAggregate

from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns, field_of
from lockgate_taskmanager.state.columns.arrays import numpy_of, one_batch, require_values
from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.state.layout import HASH, ROWS, counts
from lockgate_taskmanager.state.rocksdb.database_store import DatabaseStore, cut
from lockgate_taskmanager.state.rocksdb.engine import ROWS_AT_ONCE
from lockgate_taskmanager.state.rocksdb.frozen_database import FrozenDatabase
from lockgate_taskmanager.state.rocksdb.key_table import KeyTable
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import Merged
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray


class AggregateTable(KeyTable):
    """The layout of the rows of one aggregation. schema: of its results."""

    def __init__(self, operator: KeyedAggregate, partial_schema: pa.Schema, max_parallelism: int) -> None:
        """Raises UserError when a column or type does not fit."""
        self._operator = operator
        self.partial_schema = partial_schema
        keys = pa.schema([field_of(partial_schema, name) for name in operator.keys])
        empty = AggregateColumns(operator, partial_schema)
        self.schema = pa.schema([*keys, *empty.fields])
        parts = [(name, column.to_arrow().type) for name, column in empty.freeze(0, Freeze())]
        self._never_null = counts(name for name, _ in parts)
        super().__init__(keys, pa.schema(parts), max_parallelism)

    def require(self, batch: pa.RecordBatch) -> None:
        super().require(batch)
        require_values(batch, *self._never_null)

    def columns(self) -> AggregateColumns:
        """Empty columns, to fold in."""
        return AggregateColumns(self._operator, self.partial_schema)


class AggregateDatabase(DatabaseStore):
    """The KeyedStore of an aggregate without windows, in RocksDB."""

    _spec: StoreSpec

    def __init__(self, spec: StoreSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        """An empty store, or the database in `folder`, which belongs to this store alone.

        Raises UserError, OSError.
        """
        self._form = AggregateTable(spec.aggregation, schema, spec.max_parallelism)
        self.schema = self._form.schema
        self.partial_schema = schema
        super().__init__(spec, folder, memory_bytes)

    def merge(self, partial: pa.Table) -> Merged:
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        batch = one_batch(partial)
        keys = batch.select(self._form.keys.names)
        names = self._form.names(keys.columns, numpy_of(batch, HASH))
        distinct = sorted(set(names))
        numbers = {name: number for number, name in enumerate(distinct)}
        rows = np.fromiter(map(numbers.__getitem__, names), np.int64, len(names))
        columns = self._read(distinct)
        columns.fold(rows, batch)
        frozen = columns.freeze(len(distinct), Freeze())
        values = row_codec.encode([column.to_arrow() for _, column in frozen])
        self.database.write(dict(zip(distinct, values, strict=True)))
        first = np.zeros(len(distinct), np.int64)
        first[rows] = np.arange(len(rows))
        columns_out = [*keys.take(pa.array(first)).columns, *columns.results(np.arange(len(distinct)))]
        changed = pa.Table.from_arrays(columns_out, schema=self.schema)
        return Merged(int(pc.sum(batch.column(ROWS)).as_py()), changed)

    def snapshot(self, order: SnapshotOrder) -> FrozenDatabase:
        """The state as it is now. Takes microseconds, unless the copy of the previous barrier is not made yet."""
        return self._frozen(order, self._spec.about(self.partial_schema), self._form)

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        for rows in cut(batches, ROWS_AT_ONCE):
            self._form.require(rows)
            self.database.itself.put(*self._form.database_rows(rows))

    def _read(self, names: Sequence[bytes]) -> AggregateColumns:
        """The values of these keys; new keys have none."""
        found = self.database.get(names)
        present = [value for value in found if value is not None]
        columns = self._form.columns()
        columns.reserve(len(names))
        if present:
            is_new = np.fromiter((value is None for value in found), np.bool_, len(found))
            positions = pa.array(np.cumsum(~is_new) - 1, mask=is_new)
            columns.restore([self._form.parts_of(present).take(positions)])
        return columns
