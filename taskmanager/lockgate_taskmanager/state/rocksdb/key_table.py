"""The layout of rows by key in a database. Every store but that of a join builds on it.

    key = key group (2 bytes, big-endian), `__hash` (8 bytes, big-endian), the key columns (see `row_codec`)
    value = the other columns of a snapshot file (its parts), in the same form

For windows a pane follows the key group (see `pane_table`); for sessions a value holds several rows (see
`session_table`). Rows that are also looked up by time have additional entries without a value: see `time_index`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.columns.arrays import require_types
from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.rocksdb.frozen_database import GROUP_BYTES

Array = Any  # numpy.ndarray
PREFIX_BYTES = GROUP_BYTES + 8


class KeyTable:
    """Encodes rows by key as database entries, and back. keys: columns of the keys; parts: columns of the values."""

    def __init__(self, keys: pa.Schema, parts: pa.Schema, max_parallelism: int) -> None:
        """Raises UserError when a type does not fit."""
        row_codec.check_types([*keys.types, *parts.types])
        self.keys = keys
        self.parts = parts
        self._max_parallelism = max_parallelism

    def names(self, keys: Sequence[pa.Array], hashes: Array) -> list[bytes]:
        """Database keys."""
        return database_names(keys, hashes, self._max_parallelism)

    def keys_of(self, names: Sequence[bytes]) -> tuple[pa.RecordBatch, Array]:
        """The key columns and hashes of database keys."""
        hashes = np.frombuffer(b"".join(name[GROUP_BYTES:PREFIX_BYTES] for name in names), ">i8").astype(np.int64)
        columns = row_codec.decode([name[PREFIX_BYTES:] for name in names], self.keys.types)
        return pa.RecordBatch.from_arrays(columns, schema=self.keys), hashes

    def parts_of(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Values of the database as columns."""
        return pa.RecordBatch.from_arrays(row_codec.decode(values, self.parts.types), schema=self.parts)

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Rows of the database as rows of a snapshot file."""
        keys, hashes = self.keys_of([name for name, _ in rows])
        parts = self.parts_of([value for _, value in rows])
        names = [*self.keys.names, HASH, *self.parts.names]
        return pa.RecordBatch.from_arrays([*keys.columns, pa.array(hashes), *parts.columns], names=names)

    def database_rows(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
        """Rows of a snapshot file as keys and values of the database."""
        count = len(self.keys)
        hashes = batch.column(count).to_numpy(zero_copy_only=False)
        return self.names(batch.columns[:count], hashes), row_codec.encode(batch.columns[count + 1 :])

    def require(self, batch: pa.RecordBatch) -> None:
        """Raises TypeError, ValueError for rows of a snapshot file whose parts are not those of the database."""
        parts = batch.schema.types[batch.schema.get_field_index(HASH) + 1 :]
        require_types(parts, self.parts.types)


def database_names(keys: Sequence[pa.Array], hashes: Array, max_parallelism: int) -> list[bytes]:
    """Database keys: key group, hash, key columns."""
    prefix = np.empty(len(hashes), [("group", ">u2"), ("hash", ">i8")])
    prefix["group"], prefix["hash"] = np.mod(hashes, max_parallelism), hashes
    first = prefix.tobytes()
    rows = row_codec.encode([_canonical(key) for key in keys]) if keys else [b""] * len(hashes)
    return [first[i * PREFIX_BYTES : (i + 1) * PREFIX_BYTES] + row for i, row in enumerate(rows)]


def _canonical(keys: pa.Array) -> pa.Array:
    """Makes equal keys equal bytes: all NaNs become one value, and both zeros."""
    if not pa.types.is_floating(keys.type):
        return keys
    nan = pa.scalar(float("nan"), keys.type)
    return pc.add(pc.if_else(pc.is_nan(keys), nan, keys), pa.scalar(0.0, keys.type))
