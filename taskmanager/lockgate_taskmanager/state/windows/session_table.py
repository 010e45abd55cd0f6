"""The layout of session windows in a database: all sessions of a key in one entry.

key = key group (2 bytes, big-endian), `__hash` (8 bytes, big-endian), the key columns (see `row_codec`)
value = the time of the next visit + 2^63 (8 bytes, big-endian), then for each session its length (4 bytes) and its
        row: the parts of the aggregates and its bounds, as in snapshot files

Each key has an entry in `time_index`, at the time in its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.aggregates.aggregate_database import AggregateTable
from lockgate_taskmanager.state.columns.arrays import numpy_of, require_values
from lockgate_taskmanager.state.layout import HASH, SESSION_END, SESSION_FIRST
from lockgate_taskmanager.state.rocksdb.time_index import of_time_key, time_key

Array = Any  # numpy.ndarray
_TIME_BYTES = 8
_LENGTH_BYTES = 4


class SessionTable(AggregateTable):
    """Encodes the sessions of keys as database entries, and back. The operator is that of `layout.with_bounds`."""

    def names_of(self, batch: pa.RecordBatch) -> list[bytes]:
        """Database keys of the rows of a partial."""
        return self.names([batch.column(key) for key in self.keys.names], numpy_of(batch, HASH))

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Keys of the database as rows of a snapshot file, one for each session."""
        return super().stored_batch([(name, row) for name, value in rows for row in _split(value)])

    def database_rows(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
        """Rows of a snapshot file as database keys, of several sessions the same one, and what is stored of each."""
        names, rows = super().database_rows(batch)
        lengths = np.fromiter(map(len, rows), "<u4", len(rows)).tobytes()
        return names, [lengths[4 * number : 4 * number + 4] + row for number, row in enumerate(rows)]

    def require(self, batch: pa.RecordBatch) -> None:
        super().require(batch)
        require_values(batch, SESSION_FIRST, SESSION_END)


def value_of(time_ms: int, rows: bytes) -> bytes:
    """The database value of a key. rows: concatenated, as `database_rows` returns them."""
    return time_key(time_ms) + rows


def filed_at(value: bytes) -> int:
    """When the key is to be visited."""
    return of_time_key(filed(value))


def filed(value: bytes) -> bytes:
    """The same in the form of `time_index`."""
    return value[:_TIME_BYTES]


def rows_in(value: bytes) -> bytes:
    """The rows of a key."""
    return value[_TIME_BYTES:]


def _split(value: bytes) -> list[bytes]:
    found = []
    at = _TIME_BYTES
    while at < len(value):
        end = at + _LENGTH_BYTES + int.from_bytes(value[at : at + _LENGTH_BYTES], "little")
        found.append(value[at + _LENGTH_BYTES : end])
        at = end
    return found
