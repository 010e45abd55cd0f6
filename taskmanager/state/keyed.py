"""Keyed aggregate state of one subtask: folds partial aggregates, freezes in microseconds.

    partial table --merge--> changed keys with their new values
                  --freeze-> FrozenState --to_buffer (background)--> Arrow IPC file, one record batch a key group

Freezing copies nothing: the numpy columns are handed to the snapshot, and the first merge after it copies a column
before it writes into it, unless the snapshot has been written by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate

from taskmanager.state import stored
from taskmanager.state.columns import Column, Freeze, FrozenColumn
from taskmanager.state.keys import KeyIndex
from taskmanager.state.layout import HASH, ROWS, Fold, Part, parts
from taskmanager.task.program import UserError

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did. records: input rows behind the partials; changed: keys and outputs, each key once."""

    records: int
    changed: pa.Table


@dataclass(frozen=True, slots=True)
class FrozenState:
    """A consistent copy of the state; `to_buffer` may run on any thread while merging goes on."""

    keys: tuple[pa.RecordBatch, ...]
    hashes: Array
    key_schema: pa.Schema
    columns: tuple[tuple[str, FrozenColumn], ...]
    partial_schema: pa.Schema
    signature: str
    max_parallelism: int
    reader: Freeze

    def to_buffer(self) -> pa.Buffer:
        """The snapshot file's bytes."""
        return stored.write(
            self.keys,
            self.hashes,
            self.columns,
            key_schema=self.key_schema,
            partial_schema=self.partial_schema,
            signature=self.signature,
            max_parallelism=self.max_parallelism,
        )

    def release(self) -> None:
        """The bytes are made (or will not be): the state need not copy for this snapshot any more."""
        self.reader.done = True


class KeyedState:
    """Keys of the subtask's key groups with their aggregates. Used from the subtask's own thread."""

    def __init__(self, operator: KeyedAggregate, schema: pa.Schema, max_parallelism: int) -> None:
        """schema: of the partial table, see `layout`. Raises UserError when a column or type does not fit."""
        self._operator = operator
        self._parts = parts(operator)
        self._max_parallelism = max_parallelism
        self.partial_schema = schema
        key_fields = [_field(schema, name) for name in operator.keys]
        self._index = KeyIndex(pa.schema(key_fields))
        self._columns = tuple(_column(part, operator.aggregates[part.aggregate], schema) for part in self._parts)
        self._scratch = np.zeros(0, np.int64)
        outputs = [pa.field(one.output, self._output_type(i)) for i, one in enumerate(operator.aggregates)]
        self.schema = pa.schema([*key_fields, *outputs])

    def __len__(self) -> int:
        return len(self._index)

    def merge(self, partial: pa.Table) -> Merged:
        """Folds a partial table. Costs by its rows, not by the keys held. Raises UserError on overflow."""
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        batch = partial.combine_chunks().to_batches()[0]
        keys = batch.select(list(self._operator.keys))
        rows = self._index.rows_of(keys, batch.column(HASH).to_numpy(zero_copy_only=False))
        for column in self._columns:
            column.reserve(len(self._index))
        last = self._fold(rows, [batch.column(part.column) for part in self._parts])
        records = int(pc.sum(batch.column(ROWS)).as_py())
        if last is not None:
            keys, rows = keys.take(pa.array(last)), rows[last]
        return Merged(records, self._changed(keys, rows))

    def freeze(self) -> FrozenState:
        """The state as it is now. Microseconds, whatever its size."""
        reader = Freeze()
        count = len(self._index)
        names = [f"{self._operator.aggregates[p.aggregate].output}#{p.fold.value}" for p in self._parts]
        frozen = tuple((n, c.freeze(count, reader)) for n, c in zip(names, self._columns, strict=True))
        return FrozenState(
            self._index.chunks(),
            self._index.hashes,
            self._index.schema,
            frozen,
            self.partial_schema,
            stored.signature(self._operator),
            self._max_parallelism,
            reader,
        )

    def restore(self, snapshots: Sequence[stored.Stored]) -> None:
        """Replaces the state by what was stored. Call once, before the first merge."""
        keys, hashes, columns = stored.joined(snapshots, len(self._operator.keys))
        self._index.restore(keys, hashes)
        for column, values in zip(self._columns, columns, strict=True):
            column.restore(values)

    def _fold(self, rows: Array, columns: list[pa.Array]) -> Array | None:
        """Folds every occurrence; returns the positions that stand for their keys, None when all are distinct."""
        if len(self._scratch) < len(self._index):
            self._scratch = np.zeros(max(1024, 2 * len(self._index)), np.int64)
        last: Array | None = None
        pending = np.arange(len(rows))
        while len(pending):
            chosen = rows[pending]
            self._scratch[chosen] = pending
            winners = self._scratch[chosen] == pending  # one occurrence of each key
            if winners.all() and last is None:
                self._fold_distinct(rows, columns)
                return None
            here = pending[winners]
            last = here if last is None else last
            positions = pa.array(here)
            self._fold_distinct(rows[here], [column.take(positions) for column in columns])
            pending = pending[~winners]
        return last

    def _fold_distinct(self, rows: Array, columns: list[pa.Array]) -> None:
        for part, column, values in zip(self._parts, self._columns, columns, strict=True):
            try:
                column.merge(rows, values)
            except UserError as error:
                output = self._operator.aggregates[part.aggregate].output
                raise UserError(f"aggregate '{output}': {error}") from error

    def _changed(self, keys: pa.RecordBatch, rows: Array) -> pa.Table:
        arrays = list(keys.columns)
        at = 0
        for aggregate in self._operator.aggregates:
            arrays.append(self._columns[at].take(rows))
            at += 1
            if aggregate.function is AggregateFunction.AVG:
                arrays[-1] = _quotient(arrays[-1], self._columns[at].take(rows))
                at += 1
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _output_type(self, aggregate: int) -> pa.DataType:
        if self._operator.aggregates[aggregate].function is AggregateFunction.AVG:
            return pa.float64()
        return next(c.type for p, c in zip(self._parts, self._columns, strict=True) if p.aggregate == aggregate)


def _quotient(sums: pa.Array, counts: pa.Array) -> pa.Array:
    return pc.divide(sums.cast(pa.float64()), counts.cast(pa.float64()))


def _field(schema: pa.Schema, name: str) -> pa.Field:
    index = schema.get_field_index(name)
    if index < 0:
        raise UserError(f"the input has no column '{name}'; its columns are {', '.join(schema.names)}")
    return pa.field(name, schema.field(index).type)


def _column(part: Part, aggregate: Aggregate, schema: pa.Schema) -> Column:
    kind = pa.int64() if part.fold is Fold.COUNT else _field(schema, part.column).type
    try:
        return Column(part.fold, kind)
    except UserError as error:
        raise UserError(f"aggregate '{aggregate.output}': {error}") from error


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups of a subtask: those with `group * parallelism // max_parallelism == subtask`."""
    first = -(-subtask * max_parallelism // parallelism)
    return range(first, -(-(subtask + 1) * max_parallelism // parallelism))
