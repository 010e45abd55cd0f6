"""A copy of in-memory rows by key as of a snapshot, and its snapshot files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.columns.live_columns import FrozenColumns
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.format.diff_column import encoded
from lockgate_taskmanager.state.format.increments import Increment
from lockgate_taskmanager.state.heap.frozen_rows import FrozenRows
from lockgate_taskmanager.state.rows.before_images import Before, Layers
from lockgate_taskmanager.state.rows.row_store import PARTS

Array = Any  # numpy.ndarray
_AT_ONCE = 1 << 14  # payloads


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPayloads(FrozenRows):
    """A consistent copy, see snapshots.Frozen. An increment holds keys that are gone, too.

    parts: as PARTS; layers: what payloads were in the snapshot that this one builds on, None where no differences are
    made; payload_bytes: of all payloads.
    """

    parts: FrozenColumns
    layers: Layers | None
    payload_bytes: int

    def increment(self, since: int) -> Increment | None:
        if self.layers is not None and since >= self.changed.floor:
            return self._differences(self.layers.before())
        rows = self.changed.since(since)
        if rows is None or self._are_most(rows):
            return None

        def take(places: Array) -> pa.RecordBatch:
            parts = self.parts.take(rows[places])
            return self._with_parts(rows[places], parts).append_column(*_deleted(parts[0]))

        return Increment(state_file.write(self.hashes[rows], take, self.about, is_increment=True))

    def _differences(self, before: Before) -> Increment | None:
        """The increment as differences. If most rows changed, it pays only while it is small, so it is bounded."""
        rows = before.rows
        most_bytes = self.payload_bytes // 2 if self._are_most(rows) else None
        column = encoded(before.values, self.parts.take(rows)[0], most_bytes)
        if column is None:
            return None

        def take(places: Array) -> pa.RecordBatch:
            parts = self.parts.take(rows[places])
            batch = self._with_parts(rows[places], (column.values[places], *parts[1:]))
            if column.diff_values:
                bases = column.bases.take(pa.array(places))
                batch = batch.append_column(pa.field(state_file.BASE, pa.int64()), bases)
            return batch.append_column(*_deleted(parts[0]))

        data = state_file.write(self.hashes[rows], take, self.about, is_increment=True)
        return Increment(data, column.diff_values, column.saved_bytes)

    def _are_most(self, rows: Array) -> bool:
        return 2 * len(rows) > len(self.hashes)

    def _live(self) -> Array:
        portions = _portions(np.arange(self.parts.count))
        return np.concatenate([some[is_there(self.parts.take(some)[0])] for some in portions])

    def _taken(self, rows: Array) -> pa.RecordBatch:
        return self._with_parts(rows, self.parts.take(rows))

    def _with_parts(self, rows: Array, parts: Sequence[Array]) -> pa.RecordBatch:
        payloads = pa.concat_arrays([_binary(some) for some in _portions(parts[0])])
        return self._stored(rows, list(zip(PARTS.names, [payloads, *map(pa.array, parts[1:])], strict=True)))


def _deleted(payloads: Array) -> tuple[pa.Field, pa.Array]:
    return pa.field(state_file.DELETED, pa.bool_()), pa.array(~is_there(payloads))


def _portions(values: Array) -> list[Array]:
    """At least one. A portion of Python objects blocks other threads; they can run between portions."""
    return [values[start : start + _AT_ONCE] for start in range(0, max(len(values), 1), _AT_ONCE)]


def _binary(payloads: Array) -> pa.Array:
    found = pa.array(payloads, pa.binary())
    if isinstance(found, pa.ChunkedArray):
        raise pa.ArrowInvalid("the payloads are more than one array can hold")
    return found


def is_there(payloads: Array) -> Array:
    """Mask: the row is kept. payloads: bytes, None for dropped rows."""
    return payloads != None  # noqa: E711  element by element
