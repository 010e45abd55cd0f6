"""A copy of rows by key in memory as they were at a snapshot, and the files that are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from taskmanager.state import stored
from taskmanager.state.before_images import Before, Layers
from taskmanager.state.columns import Freeze
from taskmanager.state.diff_column import encoded
from taskmanager.state.increments import Increment
from taskmanager.state.layout import HASH
from taskmanager.state.row_store import PARTS

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """A consistent copy, see heap.Frozen.

    places: as PARTS; floor: no increment is possible on older versions; layers: what payloads were in the snapshot that
    this one builds on, None where no differences are made; payload_bytes: of all payloads.
    """

    keys: tuple[pa.RecordBatch, ...]
    key_schema: pa.Schema
    hashes: Array
    places: tuple[Array, ...]
    changed_at: Array
    about: stored.About
    reader: Freeze
    version: int
    floor: int
    layers: Layers | None
    payload_bytes: int

    def to_buffer(self) -> pa.Buffer:
        """See heap.Frozen."""
        rows = np.flatnonzero(is_there(self.places[0]))
        return stored.write(self._table(rows, self.places[0][rows]), self.about)

    def increment(self, since: int) -> Increment | None:
        """See heap.Frozen."""
        if since < self.floor:
            return None
        if self.layers is not None:
            return self._differences(self.layers.before())
        rows = np.flatnonzero(self.changed_at > since)
        if self._are_most(rows):
            return None
        table = self._table(rows, self.places[0][rows]).append_column(*self._deleted(rows))
        return Increment(stored.write(table, self.about, is_increment=True))

    def _differences(self, before: Before) -> Increment | None:
        """Of many rows it is the bytes that count, not the rows: a few in each may have changed."""
        most_bytes = self.payload_bytes // 2 if self._are_most(before.rows) else None
        column = encoded(before.values, self.places[0][before.rows], most_bytes)
        if column is None:
            return None
        table = self._table(before.rows, column.values)
        if column.diff_values:
            table = table.append_column(pa.field(stored.BASE, pa.int64()), column.bases)
        data = stored.write(table.append_column(*self._deleted(before.rows)), self.about, is_increment=True)
        return Increment(data, column.diff_values, column.saved_bytes)

    def release(self) -> None:
        """See heap.Frozen."""
        self.reader.done = True

    def _are_most(self, rows: Array) -> bool:
        return 2 * len(rows) > len(self.hashes)

    def _deleted(self, rows: Array) -> tuple[pa.Field, pa.Array]:
        return pa.field(stored.DELETED, pa.bool_()), pa.array(~is_there(self.places[0][rows]))

    def _table(self, rows: Array, payloads: Array) -> pa.Table:
        """Key columns, `__hash` and parts of some rows."""
        positions = pa.array(rows)
        columns = [
            pa.chunked_array([chunk.column(number) for chunk in self.keys], field.type).take(positions)
            for number, field in enumerate(self.key_schema)
        ]
        columns.append(pa.array(self.hashes[rows]))
        parts = (payloads, *(part[rows] for part in self.places[1:]))
        columns += [pa.array(part, field.type) for part, field in zip(parts, PARTS, strict=True)]
        return pa.table(columns, names=[*self.key_schema.names, HASH, *PARTS.names])


def is_there(payloads: Array) -> Array:
    """Mask: the row is kept. payloads: bytes, None for those that are not."""
    return payloads != None  # noqa: E711  element by element
