"""Rows by key in memory, for the backends `memory` and `filesystem`.

A row keeps its place: that of a deleted row is reserved for the same key. When deleted rows outnumber the others, the
store is compacted, which costs no more than the deletions did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.columns.changes import Changes
from lockgate_taskmanager.state.columns.deadlines import Due
from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.columns.live_columns import LiveColumns
from lockgate_taskmanager.state.format.state_file import Stored
from lockgate_taskmanager.state.heap.heap_store import HeapStore
from lockgate_taskmanager.state.heap.snapshots import FrozenHeap
from lockgate_taskmanager.state.rows.before_images import BeforeImages, Layers
from lockgate_taskmanager.state.rows.frozen_payloads import FrozenPayloads, is_there
from lockgate_taskmanager.state.rows.row_store import (
    KEYS_AT_ONCE,
    NEVER,
    PARTS,
    Keys,
    Rows,
    RowSpec,
    is_kept,
    portions,
    rows_of,
)
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray
_WIDTHS_MS = (1000, 100, 1000)  # of event time timers, timers by the wall clock, expiry
_FEW_ROWS = 4096  # no compaction for fewer deleted rows
_FIRST_CAPACITY = 1024
_KINDS = ((None, np.object_), (NEVER, np.int64), (NEVER, np.int64), (NEVER, np.int64))  # as PARTS


class RowHeap(HeapStore):
    """The RowStore in memory."""

    elements = None

    def __init__(self, spec: RowSpec, record_schema: pa.Schema, choice: StateBackend) -> None:
        """choice: how snapshots are to be. Raises UserError for keys that cannot be compared."""
        super().__init__(spec, choice)
        self.record_schema = record_schema
        self.clock = spec.clock()
        self._images = BeforeImages() if choice.binary_diff and self.chains.is_incremental else None
        self._index = KeyIndex(pa.schema([record_schema.field(name) for name in spec.within(record_schema).keys]))
        self._places = LiveColumns(_KINDS, _FIRST_CAPACITY)
        self._changes = Changes(is_kept=True)
        self._kept = 0
        self._is_visited = False
        self._event, self._wall, self._expiry = (Due(width) for width in _WIDTHS_MS)

    def restore(self, snapshots: Sequence[Stored]) -> None:
        for batch in (batch for snapshot in snapshots for batch in snapshot.batches):
            self.put(*split(batch, len(self._index.schema)))
        self.clock.restore([snapshot.about for snapshot in snapshots])
        self._changes.restored(len(self._index))
        if self._images is not None and self.chains.is_begun:
            self._images.begin(0)

    def __len__(self) -> int:
        return self._kept

    def find(self, keys: Keys, now_ms: int) -> pa.Array:
        rows = self._index.known_rows_of(keys.columns, keys.hashes)
        is_gone = (rows < 0) | (self._places[3][rows] <= now_ms)
        return pa.array(self._places[0][rows], PARTS.field(0).type, mask=is_gone)

    def put(self, keys: Keys, rows: Rows) -> None:
        wanted = is_kept(rows.payloads)
        if not wanted.all():  # those that are to be forgotten, and were never there, get no place
            known = self._index.known_rows_of(keys.columns, keys.hashes) >= 0
            places = np.flatnonzero(wanted | known)
            keys, rows, wanted = keys.take(places), rows.take(places), wanted[places]
        if len(keys):
            self._set(self._index.rows_of(keys.columns, keys.hashes), rows, wanted)

    def due(self, event_ms: int, wall_ms: int) -> Iterator[tuple[Keys, pa.Array]]:
        rows = np.union1d(self._event.passed(event_ms), self._wall.passed(wall_ms))
        rows = rows[self._places[3][rows] > wall_ms]
        self._is_visited = True
        for start in range(0, len(rows), KEYS_AT_ONCE):
            some = rows[start : start + KEYS_AT_ONCE]
            payloads = self._places[0][some]
            for part in portions(payloads):
                mine = some[part]
                keys = Keys(self._index.keys_at(mine), self._index.hashes[mine])
                yield keys, pa.array(payloads[part], PARTS.field(0).type)
        self._is_visited = False
        self._tidy_up()

    def next_due(self, event_ms: int) -> int:
        return 0 if self._event.next() <= min(event_ms, NEVER - 1) else min(self._wall.next(), self._expiry.next())

    def expire(self, now_ms: int) -> None:
        rows = self._expiry.passed(now_ms)
        if len(rows):
            nothing = np.full(len(rows), NEVER)
            payloads = pa.nulls(len(rows), PARTS.field(0).type)
            self._set(rows, Rows(payloads, nothing, nothing, nothing), np.zeros(len(rows), np.bool_))

    def snapshot(self, order: SnapshotOrder) -> FrozenHeap:
        """The rows as they are now. Takes microseconds."""
        base = self.chains.base(order)
        layers = self._images.since(base.version) if base is not None and self._images is not None else None
        frozen = self._frozen(order, self._freeze(layers))
        if frozen.is_shared and self._images is not None:
            self._images.begin(frozen.frozen.version)
        return frozen

    def _freeze(self, layers: Layers | None) -> FrozenPayloads:
        reader = Freeze()
        count = len(self._index)
        return FrozenPayloads(
            keys=self._index.frozen(),
            hashes=self._index.hashes,
            about=self._spec.about(self.record_schema, self.clock.before_end, ahead=self.clock.ahead),
            changed=self._changes.freeze(count),
            reader=reader,
            parts=self._places.freeze(count, reader),
            layers=layers,
            payload_bytes=0 if self._images is None else self._images.live_bytes,
        )

    def _set(self, places: Array, rows: Rows, wanted: Array) -> None:
        """Writes rows (distinct) to their places."""
        self._places.reserve(len(self._index))
        before, after = self._places[0][places], _objects(rows.payloads)
        if self._images is not None:
            self._images.note(places, before, after, self._changes.last(places, len(self._index)))
        self._kept += int(wanted.sum()) - int(is_there(before).sum())
        self._places.write(places, (after, rows.event, rows.wall, rows.expiry))
        self._changes.mark(places, len(self._index))
        for order, times in ((self._event, rows.event), (self._wall, rows.wall), (self._expiry, rows.expiry)):
            order.set(places, times)
        self._tidy_up()

    def _tidy_up(self) -> None:
        """Compacts the rows when most places are empty, unless an iteration over places is in progress."""
        if not self._is_visited and len(self._index) - self._kept > max(self._kept, _FEW_ROWS):
            self._move_together()

    def _move_together(self) -> None:
        kept = np.flatnonzero(is_there(self._places[0][: len(self._index)]))
        capacity = max(_FIRST_CAPACITY, 2 * len(kept))
        self._index.keep(kept)
        self._places.keep(kept, capacity)
        self._changes.moved(kept, is_complete=False)  # which keys were forgotten before is not known any more
        if self._images is not None:
            self._images.clear()
        self._event, self._wall, self._expiry = (Due(width) for width in _WIDTHS_MS)
        for part, order in enumerate((self._event, self._wall, self._expiry), start=1):
            order.set(np.arange(len(kept)), self._places[part][: len(kept)])


def split(batch: pa.RecordBatch, key_count: int) -> tuple[Keys, Rows]:
    """Rows of a snapshot file."""
    names = batch.schema.names
    hashes = batch.column(key_count).to_numpy(zero_copy_only=False)
    return Keys(batch.select(names[:key_count]), hashes), rows_of(batch)


def _objects(payloads: pa.Array) -> Array:
    """Bytes and None; an array of bytes would lose zeros at the end."""
    found = np.empty(len(payloads), np.object_)
    found[:] = payloads.to_pylist()
    return found
