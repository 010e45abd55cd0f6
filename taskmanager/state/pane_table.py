"""How tumbling and sliding windows lie in a database: a row for each key and pane.

key = key group (2 bytes, big-endian), the pane + 2^63 (8 bytes, big-endian), `__hash` (8 bytes), the key columns
value = the parts of the aggregates

So the rows of a pane are together, in each key group in the same order of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import KeyedAggregate

from taskmanager.state import row_codec
from taskmanager.state.arrays import numpy_of
from taskmanager.state.frozen_rocks import GROUP_BYTES, group_key
from taskmanager.state.layout import HASH, PANE
from taskmanager.state.rocks import RowForm
from taskmanager.state.time_index import of_time_key, time_key

Array = Any  # numpy.ndarray
PREFIX_BYTES = GROUP_BYTES + 8


class PaneTable:
    """See the module, and frozen_rocks.TableForm."""

    def __init__(self, operator: KeyedAggregate, partial_schema: pa.Schema, max_parallelism: int) -> None:
        """Raises UserError when a column or type does not fit."""
        self._form = RowForm(operator, partial_schema, max_parallelism)
        self._keys = len(operator.keys)

    def names(self, keys: Sequence[pa.Array], panes: Array, hashes: Array) -> list[bytes]:
        """Database keys."""
        return in_panes(self._form.names(keys, hashes), panes)

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Rows of the database as rows of a snapshot file."""
        found = self._form.stored_batch([(name[:GROUP_BYTES] + name[PREFIX_BYTES:], value) for name, value in rows])
        raw = np.frombuffer(b"".join(name[GROUP_BYTES:PREFIX_BYTES] for name, _ in rows), ">u8").astype(np.uint64)
        panes = pa.array((raw ^ np.uint64(1 << 63)).view(np.int64))
        names = found.schema.names
        names.insert(self._keys, PANE)
        columns = [*found.columns[: self._keys], panes, *found.columns[self._keys :]]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def database_rows(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
        """Rows of a snapshot file as keys and values of the database."""
        panes, hashes = (numpy_of(batch, name) for name in (PANE, HASH))
        names = self.names(batch.columns[: self._keys], panes, hashes)
        return names, row_codec.encode(batch.columns[self._keys + 2 :])


def in_panes(names: Sequence[bytes], panes: Array) -> list[bytes]:
    """Database keys with the pane put in. names: without, see rocks.database_names."""
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
