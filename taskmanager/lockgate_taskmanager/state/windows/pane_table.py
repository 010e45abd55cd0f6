"""The layout of tumbling and sliding windows in a database: one row for each key and pane.

key = key group (2 bytes, big-endian), the pane + 2^63 (8 bytes, big-endian), `__hash` (8 bytes), the key columns
value = the parts of the aggregates

So within a key group the rows of a pane are adjacent, always in the same order of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.aggregates.aggregate_database import AggregateTable
from lockgate_taskmanager.state.columns.arrays import numpy_of, require_values
from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.state.layout import HASH, PANE
from lockgate_taskmanager.state.rocksdb.frozen_database import GROUP_BYTES, group_key
from lockgate_taskmanager.state.rocksdb.key_table import PREFIX_BYTES
from lockgate_taskmanager.state.rocksdb.time_index import of_time_key, time_key

Array = Any  # numpy.ndarray


class PaneTable(AggregateTable):
    """Encodes rows by key and pane as database entries, and back."""

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Rows of the database as rows of a snapshot file."""
        found = super().stored_batch([(name[:GROUP_BYTES] + name[PREFIX_BYTES:], value) for name, value in rows])
        keys = len(self.keys)
        raw = np.frombuffer(b"".join(name[GROUP_BYTES:PREFIX_BYTES] for name, _ in rows), ">u8").astype(np.uint64)
        panes = pa.array((raw ^ np.uint64(1 << 63)).view(np.int64))
        names = found.schema.names
        names.insert(keys, PANE)
        columns = [*found.columns[:keys], panes, *found.columns[keys:]]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def database_rows(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
        """Rows of a snapshot file as keys and values of the database."""
        keys = len(self.keys)
        names = self.names(batch.columns[:keys], numpy_of(batch, HASH))
        return in_panes(names, numpy_of(batch, PANE)), row_codec.encode(batch.columns[keys + 2 :])

    def require(self, batch: pa.RecordBatch) -> None:
        super().require(batch)
        require_values(batch, PANE)


def in_panes(names: Sequence[bytes], panes: Array) -> list[bytes]:
    """Database keys with the pane put in. names: without, see key_table.database_names."""
    data = (panes.view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").tobytes()
    return [
        name[:GROUP_BYTES] + data[8 * number : 8 * number + 8] + name[GROUP_BYTES:] for number, name in enumerate(names)
    ]


def pane_key(group: int, pane: int) -> bytes:
    """What no row of that pane or a later one, in that key group, is smaller than."""
    return group_key(group) + time_key(pane)


def pane_of(name: bytes) -> int:
    """The pane of a database key."""
    return of_time_key(name[GROUP_BYTES:PREFIX_BYTES])
