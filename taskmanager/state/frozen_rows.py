"""A copy of rows by key in memory as they were at a snapshot, and the files that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from taskmanager.state.live_columns import FrozenColumns
from taskmanager.state.pieces import FrozenPieces
from taskmanager.state.row_store import PARTS

Array = Any  # numpy.ndarray
_AT_ONCE = 1 << 14  # payloads


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """A consistent copy, see heap.Frozen.

    places: as PARTS; floor: no increment is possible on older versions; layers: what payloads were in the snapshot that
    this one builds on, None where no differences are made; payload_bytes: of all payloads.
    """

    keys: FrozenPieces
    hashes: Array
    places: FrozenColumns
    changed_at: Array
    about: stored.About
    reader: Freeze
    version: int
    floor: int
    layers: Layers | None
    payload_bytes: int

    def to_buffer(self) -> pa.Buffer:
        """See heap.Frozen."""
        portions = _portions(np.arange(self.places.count))
        kept = np.concatenate([some[is_there(self.places.take(some)[0])] for some in portions])
        return self._written(kept, lambda rows, _: self._taken(rows, self.places.take(rows)))

    def increment(self, since: int) -> Increment | None:
        """See heap.Frozen."""
        if since < self.floor:
            return None
        if self.layers is not None:
            return self._differences(self.layers.before())
        rows = np.flatnonzero(self.changed_at > since)
        if self._are_most(rows):
            return None

        def take(rows: Array, _: Array) -> pa.RecordBatch:
            parts = self.places.take(rows)
            return self._taken(rows, parts).append_column(*_deleted(parts[0]))

        return Increment(self._written(rows, take, is_increment=True))

    def _differences(self, before: Before) -> Increment | None:
        """Of many rows it is the bytes that count, not the rows: a few in each may have changed."""
        most_bytes = self.payload_bytes // 2 if self._are_most(before.rows) else None
        column = encoded(before.values, self.places.take(before.rows)[0], most_bytes)
        if column is None:
            return None

        def take(rows: Array, places: Array) -> pa.RecordBatch:
            parts = self.places.take(rows)
            batch = self._taken(rows, (column.values[places], *parts[1:]))
            if column.diff_values:
                bases = column.bases.take(pa.array(places))
                batch = batch.append_column(pa.field(stored.BASE, pa.int64()), bases)
            return batch.append_column(*_deleted(parts[0]))

        return Increment(self._written(before.rows, take, is_increment=True), column.diff_values, column.saved_bytes)

    def release(self) -> None:
        """See heap.Frozen."""
        self.reader.done = True

    def _are_most(self, rows: Array) -> bool:
        return 2 * len(rows) > len(self.hashes)

    def _written(
        self, rows: Array, take: Callable[[Array, Array], pa.RecordBatch], *, is_increment: bool = False
    ) -> pa.Buffer:
        """take: gets rows, and their places among those given."""
        return stored.write(
            self.hashes[rows], lambda places: take(rows[places], places), self.about, is_increment=is_increment
        )

    def _taken(self, rows: Array, parts: Sequence[Array]) -> pa.RecordBatch:
        """Key columns, `__hash` and parts of some rows."""
        payloads = pa.concat_arrays([_binary(some) for some in _portions(parts[0])])
        keys = self.keys.take(rows)
        columns = [*keys.columns, pa.array(self.hashes[rows]), payloads, *map(pa.array, parts[1:])]
        return pa.RecordBatch.from_arrays(columns, [*keys.schema.names, HASH, *PARTS.names])


def _deleted(payloads: Array) -> tuple[pa.Field, pa.Array]:
    return pa.field(stored.DELETED, pa.bool_()), pa.array(~is_there(payloads))


def _portions(values: Array) -> list[Array]:
    """At least one. Whoever goes through Python objects keeps other threads out, but not from one to the next."""
    return [values[start : start + _AT_ONCE] for start in range(0, max(len(values), 1), _AT_ONCE)]


def _binary(payloads: Array) -> pa.Array:
    found = pa.array(payloads, pa.binary())
    if isinstance(found, pa.ChunkedArray):
        raise pa.ArrowInvalid("the payloads are more than one array can hold")
    return found


def is_there(payloads: Array) -> Array:
    """Mask: the row is kept. payloads: bytes, None for those that are not."""
    return payloads != None  # noqa: E711  element by element
