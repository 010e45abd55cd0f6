"""Rows by key in memory: what the backends `memory` and `filesystem` work on.

Rows are never moved while they are kept: a forgotten one leaves its place to the same key, and when the places of
forgotten rows outnumber the others everything moves together, which costs no more than what was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateBackend

from taskmanager.state import stored
from taskmanager.state.backend import load
from taskmanager.state.before_images import BeforeImages, Layers
from taskmanager.state.chains import Chain, Chains
from taskmanager.state.columns import Freeze
from taskmanager.state.due import Due
from taskmanager.state.event_clock import EventClock
from taskmanager.state.frozen_rows import FrozenRows, is_there
from taskmanager.state.heap import FrozenHeap, handles_of, without_bytes
from taskmanager.state.increments import latest
from taskmanager.state.keys import KeyIndex
from taskmanager.state.live_columns import LiveColumns
from taskmanager.state.row_store import KEYS_AT_ONCE, NEVER, PARTS, Keys, Rows, RowSpec, is_kept, portions, rows_of
from taskmanager.task.program import SnapshotOrder, StateUnreadable

Array = Any  # numpy.ndarray
_WIDTHS_MS = (1000, 100, 1000)  # of event time timers, timers by the wall clock, expiry
_FEW_ROWS = 4096  # places of forgotten rows that do not matter
_FIRST_CAPACITY = 1024
_KINDS = ((None, np.object_), (NEVER, np.int64), (NEVER, np.int64), (NEVER, np.int64))  # as PARTS


class RowHeap:
    """See RowStore."""

    def __init__(self, spec: RowSpec, record_schema: pa.Schema, choice: StateBackend) -> None:
        """choice: how snapshots are to be. Raises UserError for keys that cannot be compared."""
        self.record_schema = record_schema
        self.clock = EventClock(spec.max_parallelism, spec.key_groups)
        self._spec = spec
        self._chains = Chains(choice.full_every)
        self._images = BeforeImages() if choice.binary_diff and self._chains.is_incremental else None
        self._index = KeyIndex(pa.schema([record_schema.field(name) for name in spec.keys]))
        self._places = LiveColumns(_KINDS, _FIRST_CAPACITY)
        self._changed_at = np.zeros(_FIRST_CAPACITY, np.int32)
        self._version, self._floor = 1, 0
        self._kept = 0
        self._is_visited = False
        self._event, self._wall, self._expiry = (Due(width) for width in _WIDTHS_MS)

    @classmethod
    def restored(
        cls, spec: RowSpec, states: Sequence[OperatorState], checkpoint_id: int, choice: StateBackend
    ) -> RowHeap:
        """From what one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        chains = [[read(spec, load(handle), spec.where(handle)) for handle in handles_of(one)] for one in states]
        if any(chain[0].schema != chains[0][0].schema for chain in chains):
            raise StateUnreadable(
                f"the state of operator {spec.operator_id} has other columns in one subtask than another"
            )
        store = cls(spec, chains[0][0].partial_schema, choice)
        for chain in chains:
            for batch in latest(chain, len(spec.keys)).batches:
                store.put(*split(batch, len(spec.keys)))
        store.clock.restore(chain[-1] for chain in chains)
        store._changed_at[:] = 0
        is_ours = len(states) == 1 and all(one.owned == spec.key_groups for one in chains[0])
        if is_ours and all(handle.checkpoint_id for handle in handles_of(states[0])):
            store._chains.stored(checkpoint_id, Chain(0, without_bytes(handles_of(states[0]))))
            if store._images is not None:
                store._images.begin(0)
        return store

    def __len__(self) -> int:
        return self._kept

    def find(self, keys: Keys, now_ms: int) -> pa.Array:
        """See RowStore."""
        rows = self._index.known_rows_of(keys.columns, keys.hashes)
        is_gone = (rows < 0) | (self._places[3][rows] <= now_ms)
        return pa.array(self._places[0][rows], PARTS.field(0).type, mask=is_gone)

    def put(self, keys: Keys, rows: Rows) -> None:
        """See RowStore."""
        wanted = is_kept(rows.payloads)
        if not wanted.all():  # those that are to be forgotten, and were never there, get no place
            known = self._index.known_rows_of(keys.columns, keys.hashes) >= 0
            places = np.flatnonzero(wanted | known)
            keys, rows, wanted = keys.take(places), rows.take(places), wanted[places]
        if len(keys):
            self._set(self._index.rows_of(keys.columns, keys.hashes), rows, wanted)

    def due(self, event_ms: int, wall_ms: int) -> Iterator[tuple[Keys, pa.Array]]:
        """See RowStore."""
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
        """See RowStore."""
        return 0 if self._event.next() <= min(event_ms, NEVER - 1) else min(self._wall.next(), self._expiry.next())

    def expire(self, now_ms: int) -> None:
        """See RowStore."""
        rows = self._expiry.passed(now_ms)
        if len(rows):
            nothing = np.full(len(rows), NEVER)
            payloads = pa.nulls(len(rows), PARTS.field(0).type)
            self._set(rows, Rows(payloads, nothing, nothing, nothing), np.zeros(len(rows), np.bool_))

    def snapshot(self, order: SnapshotOrder) -> FrozenHeap:
        """See RowStore. Microseconds."""
        base = self._chains.base(order)
        is_shared = self._chains.is_incremental and not order.is_savepoint
        images = self._images
        layers = images.since(base.version) if base is not None and images is not None else None
        frozen = self._freeze(layers)
        if is_shared and images is not None:
            images.begin(frozen.version)
        return FrozenHeap(self._spec.operator_id, frozen, self._chains, base, is_shared)

    def close(self) -> None:
        """See RowStore. There is nothing but memory."""

    def _freeze(self, layers: Layers | None) -> FrozenRows:
        reader = Freeze()
        count, version = len(self._index), self._version
        self._version += 1
        return FrozenRows(
            self._index.frozen(),
            self._index.hashes,
            self._places.freeze(count, reader),
            self._changed_at[:count],
            self._spec.about(self.record_schema, self.clock),
            reader,
            version,
            self._floor,
            layers,
            0 if self._images is None else self._images.live_bytes,
        )

    def _set(self, places: Array, rows: Rows, wanted: Array) -> None:
        """Writes rows (distinct) to their places."""
        self._reserve()
        before, after = self._places[0][places], _objects(rows.payloads)
        if self._images is not None:
            self._images.note(places, before, after, self._changed_at[places])
        self._kept += int(wanted.sum()) - int(is_there(before).sum())
        self._places.write(places, (after, rows.event, rows.wall, rows.expiry))
        self._changed_at[places] = self._version
        for order, times in ((self._event, rows.event), (self._wall, rows.wall), (self._expiry, rows.expiry)):
            order.set(places, times)
        self._tidy_up()

    def _tidy_up(self) -> None:
        """Moves rows together where most places are empty, unless somebody goes through them by their places."""
        if not self._is_visited and len(self._index) - self._kept > max(self._kept, _FEW_ROWS):
            self._move_together()

    def _reserve(self) -> None:
        """Makes room for every key."""
        capacity = len(self._changed_at)
        while capacity < len(self._index):
            capacity *= 2
        if capacity > len(self._changed_at):
            self._changed_at = _grown(self._changed_at, capacity, 0)
            self._places.reserve(capacity)

    def _move_together(self) -> None:
        kept = np.flatnonzero(is_there(self._places[0][: len(self._index)]))
        capacity = max(_FIRST_CAPACITY, 2 * len(kept))
        self._index.keep(kept)
        self._places.keep(kept, capacity)
        self._changed_at = _grown(self._changed_at[kept], capacity, 0)
        if self._images is not None:
            self._images.clear()
        self._floor = self._version  # which keys were forgotten before is not known any more
        self._event, self._wall, self._expiry = (Due(width) for width in _WIDTHS_MS)
        for part, order in enumerate((self._event, self._wall, self._expiry), start=1):
            order.set(np.arange(len(kept)), self._places[part][: len(kept)])


def read(spec: RowSpec, data: pa.Buffer, where: str) -> stored.Stored:
    """The rows of this subtask's key groups in a snapshot file. Raises StateUnreadable."""
    return stored.read(
        data, where, signature=spec.signature, max_parallelism=spec.max_parallelism, wanted=spec.key_groups
    )


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


def _grown(old: Array, capacity: int, fill: Any) -> Array:
    new = np.full(capacity, fill, old.dtype)
    new[: len(old)] = old
    return new
