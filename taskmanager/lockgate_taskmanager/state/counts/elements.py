"""What the elements of count windows hold while a batch is merged: aggregates, or a record each.

Rows are those of the merge: of each key, the stored elements that it reads, and those that the batch completes or adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import CountWindow, KeyedAggregate

from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns, field_of
from lockgate_taskmanager.state.columns.arrays import expanded
from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.contents.window_contents import BYTES_AT_ONCE, Calls
from lockgate_taskmanager.state.counts.count_shape import CountShape
from lockgate_taskmanager.state.format import nested_codec, row_codec
from lockgate_taskmanager.state.join.waiting import columns_of
from lockgate_taskmanager.state.layout import WINDOW_END, WINDOW_START

Array = Any  # numpy.ndarray


class Elements(Protocol):
    """The elements of one merge after the other. shape: of the windows; schema: of the results."""

    shape: CountShape
    schema: pa.Schema

    def load(self, stored: Sequence[bytes], places: Array, count: int, records: pa.RecordBatch, rows: Array) -> None:
        """Begins a merge of `count` rows. places: rows of the stored elements; rows: of the records' elements, rising.

        Raises DataError on overflow.
        """
        ...

    def payloads(self, rows: Array) -> list[bytes]:
        """Some rows as they are stored."""
        ...

    def results(self, keys: pa.RecordBatch, first: Array, counts: Array, starts: Array, ends: Array) -> pa.Table:
        """The results of windows. keys, starts, ends: of each window; first, counts: its rows, which are adjacent.

        Raises DataError on overflow, and what a function raises.
        """
        ...


class Folded:
    """Elements as aggregates of their records, which come as partials of one record each."""

    def __init__(self, window: CountWindow, keys: tuple[str, ...], incoming: pa.Schema) -> None:
        """keys: as the records spell them. Raises UserError when a column or type does not fit."""
        self.shape = CountShape.folded(window.size, window.every)
        self._operator, self._incoming = KeyedAggregate(keys, window.aggregates), incoming
        self._columns, self._count = self._new(), 0
        self._types = [column.to_arrow().type for _, column in self._columns.freeze(0, Freeze())]
        row_codec.check_types(self._types)
        bounds = [pa.field(name, pa.int64()) for name in (WINDOW_START, WINDOW_END)]
        self.schema = pa.schema([*(field_of(incoming, key) for key in keys), *bounds, *self._columns.fields])

    def load(self, stored: Sequence[bytes], places: Array, count: int, records: pa.RecordBatch, rows: Array) -> None:
        self._columns, self._count = self._new(), count
        self._columns.reserve(count)
        if stored:
            positions = np.full(count, -1)
            positions[places] = np.arange(len(places))
            taken = pa.array(positions, mask=positions < 0)
            found = [column.take(taken) for column in row_codec.decode(stored, self._types)]
            self._columns.restore([pa.RecordBatch.from_arrays(found, [str(at) for at in range(len(found))])])
        self._columns.fold(rows, records)

    def payloads(self, rows: Array) -> list[bytes]:
        frozen = self._columns.freeze(self._count, Freeze())
        return row_codec.encode([column.to_arrow(rows) for _, column in frozen])

    def results(self, keys: pa.RecordBatch, first: Array, counts: Array, starts: Array, ends: Array) -> pa.Table:
        total = self._columns.over_ranges(first, counts)
        columns = [*keys.columns, pa.array(starts), pa.array(ends), *total.results(np.arange(len(first)))]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _new(self) -> AggregateColumns:
        return AggregateColumns(self._operator, self._incoming)


class Held:
    """Elements as records, which a function gets."""

    def __init__(
        self, window: CountWindow, incoming: pa.Schema, call: Callable[[Sequence[Calls]], pa.Table], schema: pa.Schema
    ) -> None:
        """call: calls the function; schema: of its output. Raises UserError when a type cannot be stored."""
        self.shape, self.schema = CountShape(window.size, window.every), schema
        self._call = call
        self._given = columns_of(incoming)
        self._types = [kind for field in self._given for kind in nested_codec.flat_types(field.type)]
        self._records = self._given.empty_table()
        self._order = np.zeros(0, np.int64)  # the record of each row

    def load(self, stored: Sequence[bytes], places: Array, count: int, records: pa.RecordBatch, rows: Array) -> None:
        tables = [pa.Table.from_batches([records.select(self._given.names)])]
        if stored:
            columns = nested_codec.nested(row_codec.decode(stored, self._types), self._given.types)
            tables.append(pa.Table.from_arrays(columns, schema=self._given))
        self._records = pa.concat_tables(tables).combine_chunks()
        self._order = np.zeros(count, np.int64)
        self._order[rows] = np.arange(len(rows))
        self._order[places] = len(rows) + np.arange(len(places))

    def payloads(self, rows: Array) -> list[bytes]:
        taken = self._records.take(pa.array(self._order[rows])).combine_chunks()
        flat = [
            column for batch in taken.to_batches() for given in batch.columns for column in nested_codec.flat(given)
        ]
        return row_codec.encode(flat) if flat else []

    def results(self, keys: pa.RecordBatch, first: Array, counts: Array, starts: Array, ends: Array) -> pa.Table:
        del keys  # are among the records' columns
        found = []
        row_bytes = self._records.nbytes // max(1, self._records.num_rows) + 1
        for rows, which in expanded(first, counts, min(firing.ROWS_AT_ONCE, BYTES_AT_ONCE // row_bytes)):
            given = self._records.take(pa.array(self._order[rows]))
            found.append(self._call([Calls(given, which, starts[which], ends[which])]))
        return pa.concat_tables(found)
