"""Keyed state in a RocksDB database on the task manager's disk: as much as the disk holds.

    key = key group (2 bytes, big-endian), `__hash` (8 bytes, big-endian), the key columns (see `row_codec`)
    value = the parts of the aggregates, as they are stored in snapshot files, in the same form

A micro-batch costs one read of its keys, a fold in Arrow and numpy, and one write of them, whatever is held besides.
See `held_database` for what happens at barriers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import KeyedAggregate

from taskmanager.state import filling, row_codec, stored
from taskmanager.state.aggregates import AggregateColumns, field_of
from taskmanager.state.arrays import numpy_of, one_batch
from taskmanager.state.columns import Freeze
from taskmanager.state.event_clock import Restored
from taskmanager.state.frozen_rocks import GROUP_BYTES, FrozenRocks, endless_chains, frozen_rocks
from taskmanager.state.held_database import opened
from taskmanager.state.layout import HASH, ROWS
from taskmanager.state.rocksdb import ROWS_AT_ONCE
from taskmanager.state.store import Merged, StoreSpec
from taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray
PREFIX_BYTES = GROUP_BYTES + 8


class RowForm:
    """How rows of one operator's state are laid out."""

    def __init__(self, operator: KeyedAggregate, partial_schema: pa.Schema, max_parallelism: int) -> None:
        """Raises UserError when a column or type does not fit."""
        self._operator = operator
        self._max_parallelism = max_parallelism
        self.partial_schema = partial_schema
        self.key_fields = [field_of(partial_schema, name) for name in operator.keys]
        empty = AggregateColumns(operator, partial_schema)
        parts = empty.freeze(0, Freeze())
        self.part_names = [name for name, _ in parts]
        self.part_types = [column.to_arrow().type for _, column in parts]
        self.schema = pa.schema([*self.key_fields, *empty.fields])
        row_codec.check_types([*(field.type for field in self.key_fields), *self.part_types])

    def columns(self) -> AggregateColumns:
        """Empty columns, to fold in."""
        return AggregateColumns(self._operator, self.partial_schema)

    def names(self, keys: Sequence[pa.Array], hashes: Array) -> list[bytes]:
        """Database keys."""
        return database_names(keys, hashes, self._max_parallelism)

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Rows of the database as rows of a snapshot file."""
        hashes = np.frombuffer(b"".join(key[GROUP_BYTES:PREFIX_BYTES] for key, _ in rows), ">i8").astype(np.int64)
        keys = row_codec.decode([key[PREFIX_BYTES:] for key, _ in rows], [field.type for field in self.key_fields])
        parts = row_codec.decode([value for _, value in rows], self.part_types)
        names = [*(field.name for field in self.key_fields), HASH, *self.part_names]
        return pa.RecordBatch.from_arrays([*keys, pa.array(hashes), *parts], names=names)

    def database_rows(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
        """Rows of a snapshot file as keys and values of the database."""
        count = len(self.key_fields)
        hashes = batch.column(count).to_numpy(zero_copy_only=False)
        return self.names(batch.columns[:count], hashes), row_codec.encode(batch.columns[count + 1 :])


class RocksStore:
    """See KeyedStore. The database's folder is removed by `close`."""

    def __init__(self, spec: StoreSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        """An empty one, or with the database that lies in `folder`, which is of this store alone.

        Raises UserError, OSError.
        """
        self._spec = spec
        self._form = RowForm(spec.aggregation, schema, spec.max_parallelism)
        self.schema = self._form.schema
        self.partial_schema = schema
        self.chains = endless_chains()
        self.database = opened(folder, memory_bytes)

    def merge(self, partial: pa.Table) -> Merged:
        """See KeyedStore."""
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        batch = one_batch(partial)
        keys = batch.select([field.name for field in self._form.key_fields])
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
        shown = [*keys.take(pa.array(first)).columns, *columns.results(np.arange(len(distinct)))]
        changed = pa.Table.from_arrays(shown, schema=self.schema)
        return Merged(int(pc.sum(batch.column(ROWS)).as_py()), changed)

    def snapshot(self, order: SnapshotOrder) -> FrozenRocks:
        """See KeyedStore. Microseconds, unless the copy of the barrier before is not made yet."""
        about = stored.About(
            self.partial_schema,
            stored.signature(self._spec.aggregation),
            self._spec.max_parallelism,
            self._spec.key_groups,
        )
        return frozen_rocks(self._spec.operator_id, self.database, about, self.chains, order, self._form)

    def close(self) -> None:
        """See KeyedStore."""
        self.database.close()

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        """See restored_rocks.Filled."""
        for rows in filling.cut(batches, ROWS_AT_ONCE):
            self.database.itself.put(*self._form.database_rows(rows))

    def filled(self, told: Sequence[Restored]) -> None:
        """See restored_rocks.Filled. There is nothing else to know."""

    def _read(self, names: Sequence[bytes]) -> AggregateColumns:
        """The values held for these keys, nothing for those that are new."""
        found = self.database.get(names)
        present = [value for value in found if value is not None]
        columns = self._form.columns()
        columns.reserve(len(names))
        if present:
            is_new = np.fromiter((value is None for value in found), np.bool_, len(found))
            positions = pa.array(np.cumsum(~is_new) - 1, mask=is_new)
            parts = [part.take(positions) for part in row_codec.decode(present, self._form.part_types)]
            columns.restore([pa.RecordBatch.from_arrays(parts, names=self._form.part_names)])
        return columns


def database_names(keys: Sequence[pa.Array], hashes: Array, max_parallelism: int) -> list[bytes]:
    """Database keys: key group, hash, key columns."""
    prefix = np.empty(len(hashes), [("group", ">u2"), ("hash", ">i8")])
    prefix["group"], prefix["hash"] = np.mod(hashes, max_parallelism), hashes
    first = prefix.tobytes()
    rows = row_codec.encode([_canonical(key) for key in keys]) if keys else [b""] * len(hashes)
    return [first[i * PREFIX_BYTES : (i + 1) * PREFIX_BYTES] + row for i, row in enumerate(rows)]


def _canonical(keys: pa.Array) -> pa.Array:
    """Equal keys as equal bytes: there is one NaN and one zero."""
    if not pa.types.is_floating(keys.type):
        return keys
    nan = pa.scalar(float("nan"), keys.type)
    return pc.add(pc.if_else(pc.is_nan(keys), nan, keys), pa.scalar(0.0, keys.type))
