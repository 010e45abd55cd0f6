"""Rows by key in a RocksDB database, limited only by the disk.

The layout is that of `key_table`, with the parts of a row (see `row_store`) as the value. Each time of a row has an
entry without a value in `time_index`, so that due rows are found in order of time. Elements of large maps and lists
have entries of their own, see `element_entries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.state.rocksdb.database_store import DatabaseStore, cut
from lockgate_taskmanager.state.rocksdb.engine import ROWS_AT_ONCE
from lockgate_taskmanager.state.rocksdb.frozen_database import FrozenDatabase
from lockgate_taskmanager.state.rocksdb.key_table import KeyTable
from lockgate_taskmanager.state.rocksdb.time_index import bound, entry, name_of, time_key, time_of
from lockgate_taskmanager.state.rows.row_elements import RowElements
from lockgate_taskmanager.state.rows.row_heap import split
from lockgate_taskmanager.state.rows.row_store import (
    KEYS_AT_ONCE,
    NEVER,
    PARTS,
    PROCESS,
    Keys,
    Rows,
    RowSpec,
    is_kept,
    portions,
    rows_of,
)
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray
_EVENT, _WALL, _EXPIRY = range(3)
_UNKNOWN = -NEVER


class RowTable(KeyTable):
    """How rows lie in the database, see `key_table`: the parts are PARTS."""

    def __init__(self, spec: RowSpec, record_schema: pa.Schema) -> None:
        """Raises UserError when a key cannot be kept."""
        super().__init__(
            pa.schema([record_schema.field(name) for name in spec.within(record_schema).keys]),
            PARTS,
            spec.max_parallelism,
        )

    def names_of(self, keys: Keys) -> list[bytes]:
        """Database keys."""
        return self.names(keys.columns.columns, keys.hashes)

    def rows_of(self, values: Sequence[bytes | None]) -> Rows:
        """Values of the database as rows; nothing for None."""
        present = [value for value in values if value is not None]
        is_missing = np.fromiter((value is None for value in values), np.bool_, len(values))
        found = rows_of(self.parts_of(present))
        if not is_missing.any():
            return found
        places = np.cumsum(~is_missing) - 1
        times = []
        for part in (found.event, found.wall, found.expiry):
            spread = np.full(len(values), NEVER)
            spread[~is_missing] = part
            times.append(spread)
        return Rows(found.payloads.take(pa.array(places, mask=is_missing)), *times)


class RowDatabase(DatabaseStore):
    """The RowStore in RocksDB."""

    _spec: RowSpec

    def __init__(self, spec: RowSpec, record_schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        """An empty store, or the database in `folder`, which belongs to this store alone.

        Raises UserError when a key cannot be kept, OSError.
        """
        self.record_schema = record_schema
        self.clock = spec.clock()
        self._table = RowTable(spec, record_schema)
        super().__init__(spec, folder, memory_bytes)
        self.elements = RowElements(self.database, self._table.names_of) if spec.owner == PROCESS else None
        self._has_elements = self.elements is not None
        self._next = [_UNKNOWN] * 3  # no entry is before that

    def find(self, keys: Keys, now_ms: int) -> pa.Array:
        names = self._table.names_of(keys)
        rows = self._table.rows_of(self._get(names))
        places = pa.array(np.arange(len(keys)), mask=rows.expiry <= now_ms)
        found = rows.payloads.take(places)
        return found if self.elements is None else self.elements.joined(names, found)

    def put(self, keys: Keys, rows: Rows) -> None:
        names = self._table.names_of(keys)
        stored = self._get(names)
        before = self._table.rows_of(stored)
        values = row_codec.encode(rows.parts())
        kept = is_kept(rows.payloads)
        changes: dict[bytes, bytes | None] = {}
        for kind, old, new in zip(range(3), _times(before), _times(rows), strict=True):
            new = np.where(kept, new, NEVER)
            changes |= {
                entry(kind, time_key(int(old[at])), names[at]): None
                for at in np.flatnonzero((old != NEVER) & (old != new))
            }
            changes |= {
                entry(kind, time_key(int(new[at])), names[at]): b""
                for at in np.flatnonzero((new != NEVER) & (old != new))
            }
            self._next[kind] = min(self._next[kind], int(new.min(initial=NEVER)))
        if self.elements is not None:
            changes |= self.elements.obsolete(names, before.payloads, rows.payloads)
        changes |= {
            name: value if there else None
            for name, old, value, there in zip(names, stored, values, kept.tolist(), strict=True)
            if old != value or not there  # a row may be put for its elements alone
        }
        self.database.write(changes)

    def due(self, event_ms: int, wall_ms: int) -> Iterator[tuple[Keys, pa.Array]]:
        following = {kind: now for kind, now in ((_EVENT, event_ms), (_WALL, wall_ms)) if now >= self._next[kind]}
        times = dict(following)
        for kind in times:
            self._next[kind] = following[kind] = NEVER
        names: list[bytes] = []
        for group in self._spec.key_groups if times else ():
            found: set[bytes] = set()
            for kind, now in times.items():
                passed, later = self._passed_in(group, kind, now)
                found.update(passed)
                following[kind] = min(following[kind], later)
            names += sorted(found)  # key groups come in the order of names
            while len(names) >= KEYS_AT_ONCE:
                yield from self._given(names[:KEYS_AT_ONCE], wall_ms)
                del names[:KEYS_AT_ONCE]
        yield from self._given(names, wall_ms)
        for kind, time in following.items():
            self._next[kind] = min(self._next[kind], time)

    def _given(self, names: Sequence[bytes], wall_ms: int) -> Iterator[tuple[Keys, pa.Array]]:
        values = self.database.get(names)
        for part in portions(values):
            keys, rows = Keys(*self._table.keys_of(names[part])), self._table.rows_of(values[part])
            places = np.flatnonzero(rows.expiry > wall_ms)
            keys, payloads = keys.take(places), rows.payloads.take(pa.array(places))
            if self.elements is not None:
                yield from self.elements.portions([names[part][at] for at in places.tolist()], keys, payloads)
            elif len(places):
                yield keys, payloads

    def next_due(self, event_ms: int) -> int:
        return 0 if self._next[_EVENT] <= min(event_ms, NEVER - 1) else min(self._next[_WALL], self._next[_EXPIRY])

    def expire(self, now_ms: int) -> None:
        names = sorted(self._passed(_EXPIRY, now_ms))
        if names:
            nothing = np.full(len(names), NEVER)
            payloads = pa.nulls(len(names), PARTS.field(0).type)
            self.put(Keys(*self._table.keys_of(names)), Rows(payloads, nothing, nothing, nothing))

    def snapshot(self, order: SnapshotOrder) -> FrozenDatabase:
        """The rows as they are now. Takes microseconds, unless the copy of the previous barrier is not made yet."""
        return self._frozen(
            order, self._spec.about(self.record_schema, self.clock.before_end, ahead=self.clock.ahead), self._table
        )

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        for rows in cut(batches, ROWS_AT_ONCE):
            self.put(*split(rows, len(self._spec.keys)))

    def filled(self, restored_from: Sequence[About]) -> None:
        self.clock.restore(restored_from)

    def _get(self, names: Sequence[bytes]) -> list[bytes | None]:
        """Values of some names, in any order."""
        order = sorted(range(len(names)), key=names.__getitem__)
        found: list[bytes | None] = [None] * len(names)
        for at, value in zip(order, self.database.get([names[at] for at in order]), strict=True):
            found[at] = value
        return found

    def _passed(self, kind: int, now_ms: int) -> list[bytes]:
        """Rows with a time of this kind at or before `now_ms`. Cost grows with those, plus a look-up per key group."""
        if now_ms < self._next[kind]:
            return []
        found: list[bytes] = []
        following = NEVER
        for group in self._spec.key_groups:
            passed, later = self._passed_in(group, kind, now_ms)
            found += passed
            following = min(following, later)
        self._next[kind] = following
        return found

    def _passed_in(self, group: int, kind: int, now_ms: int) -> tuple[list[bytes], int]:
        """The same of a key group, and the next time of one there."""
        start, middle, end = (
            bound(group, kind, -NEVER),
            bound(group, kind, now_ms + 1),
            bound(group, kind + 1, -NEVER),
        )
        passed = [name_of(name) for name in self.database.names(start, middle, NEVER)]
        return passed, min(map(time_of, self.database.names(middle, end, 1)), default=NEVER)


def _times(rows: Rows) -> tuple[Array, Array, Array]:
    return rows.event, rows.wall, rows.expiry
