"""Session windows in a RocksDB database, limited only by the disk. For the layout see `session_table`.

Only SessionState knows what a session is. For the duration of a batch or a firing it gets the sessions of the keys
concerned, and its result is written back. Nothing stays in memory between batches.

A key is indexed under a time at or before its next event: the end of a session, or the end of its retention. The index
of a session that is extended is not updated with every record, but when its key is visited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import SessionWindow

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.arrays import numpy_of
from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.firing import Portion
from lockgate_taskmanager.state.layout import HASH, SESSION_END
from lockgate_taskmanager.state.rocksdb.database_store import cut
from lockgate_taskmanager.state.rocksdb.time_index import bound, entry, name_of, time_of
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.session_state import SessionState
from lockgate_taskmanager.state.windows.session_table import SessionTable, filed, filed_at, rows_in, value_of
from lockgate_taskmanager.state.windows.window_database import HeldWindows
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
_KEYS_AT_ONCE = 50_000
_END = 0  # the only kind of time that a key is filed under
_UNKNOWN = -NEVER


class SessionDatabase(HeldWindows[SessionState]):
    """The windowed store of sessions in RocksDB."""

    def __init__(self, spec: StoreSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        window = spec.aggregation.window
        assert window is not None
        assert isinstance(window.kind, SessionWindow)
        self._table = SessionTable(spec.stored, schema, spec.max_parallelism)
        super().__init__(spec, schema, SessionState, self._table, folder, memory_bytes)
        self._gap_ms = window.kind.gap_ms
        self._lateness_ms = window.allowed_lateness_ms
        self._next = NEVER  # no key is filed before that

    def next_due_ms(self) -> int:
        """No session ends before this; NEVER when there is none."""
        return self._next

    def _needed(self, batch: pa.RecordBatch) -> set[bytes]:
        """All sessions of the keys."""
        return set(self._table.names_of(batch))

    def _fires(self, now_ms: int) -> Iterator[Portion]:
        before = copy(self.clock)
        if self._next <= now_ms + 1:
            for names, done in self._due(now_ms):
                found = self._read(names)
                working = self._holding(list(found.items()), copy(before))
                fired = [working.advance(now_ms)]
                while working.has_more:
                    fired.append(working.go_on())
                self._put(working, found)
                is_settled = bool(done) and now_ms != MAX_WATERMARK
                if done.stop == self._spec.key_groups.stop:
                    self._next = self._following(now_ms)
                    self.clock.advance(now_ms)
                    yield Portion(pa.concat_tables(fired), is_settled=True, is_last=True)
                    return
                if is_settled:
                    self.clock.come_to(now_ms, done)
                yield Portion(pa.concat_tables(fired), is_settled)
        self.clock.advance(now_ms)

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds stored rows. The sessions of a key may be in any batches."""
        for rows in cut(batches, _KEYS_AT_ONCE):
            self._table.require(rows)
            together, times = self._by_key(rows, self._last(rows) + self._gap_ms)
            found = self._read(together)
            for name, value in found.items():
                together[name] = rows_in(value) + together[name]
                times[name] = min(times[name], filed_at(value))
            self._write(together, times, found)

    def filled(self, restored_from: Sequence[About]) -> None:
        self.clock.restore(restored_from)
        self._next = _UNKNOWN

    def _put(self, working: SessionState, found: Mapping[bytes, bytes]) -> None:
        """Writes the sessions of some keys. found: as they were."""
        together: dict[bytes, bytes] = dict.fromkeys(found, b"")
        times: dict[bytes, int] = {}
        for rows in working.freeze().batches():
            made, least = self._by_key(rows, self._next_times(rows, working.clock))
            for name, some in made.items():
                together[name] = together.get(name, b"") + some
                times[name] = min(times.get(name, NEVER), least[name])
        for name in times.keys() & found.keys():
            earlier = filed_at(found[name])
            if working.clock.now + 1 < earlier <= times[name]:
                times[name] = earlier
        self._write(together, times, found)

    def _by_key(self, rows: pa.RecordBatch, times: Array) -> tuple[dict[bytes, bytes], dict[bytes, int]]:
        """The stored value and the earliest time of each key. rows: of a snapshot file; times: of each row."""
        together: dict[bytes, bytes] = {}
        least: dict[bytes, int] = {}
        for name, row, time in zip(*self._table.database_rows(rows), times.tolist(), strict=True):
            if name in together:
                together[name] += row
                least[name] = min(least[name], time)
            else:
                together[name], least[name] = row, time
        return together, least

    def _write(self, together: Mapping[bytes, bytes], times: Mapping[bytes, int], found: Mapping[bytes, bytes]) -> None:
        """Replaces the values of keys; deletes keys without rows. times: the index time of each other key."""
        changes: dict[bytes, bytes | None] = {}
        for name, rows in together.items():
            old = found.get(name)
            new = value_of(times[name], rows) if rows else None
            if old == new:
                continue
            changes[name] = new
            before, after = None if old is None else filed(old), None if new is None else filed(new)
            if before is not None and before != after:
                changes[entry(_END, before, name)] = None
            if after is not None and before != after:
                changes[entry(_END, after, name)] = b""
        self.database.write(changes)
        self._next = min([self._next, *times.values()])

    def _next_times(self, rows: pa.RecordBatch, clock: EventClock) -> Array:
        """When each session is over or, if it is already, no longer kept."""
        ends = self._last(rows) + self._gap_ms
        is_over = ends <= clock.reached.of(numpy_of(rows, HASH)) + 1
        return np.where(is_over, ends + self._lateness_ms, ends)

    def _last(self, rows: pa.RecordBatch) -> Array:
        return numpy_of(rows, SESSION_END)

    def _due(self, now: int) -> Iterator[tuple[list[bytes], range]]:
        """The due keys, in portions. The caller indexes each portion again before it takes the next one.

        Beside each portion the key groups that it completes, if it ends at the end of a key group. Cost grows with the
        due keys, plus one look-up for each key group.
        """
        names: list[bytes] = []
        owned = self._spec.key_groups
        first = self._next  # where removed entries lie before, which cost as well
        for group in owned:
            is_cut = False
            at, end = bound(group, _END, first), bound(group, _END, now + 2)
            while found := self.database.names(at, end, _KEYS_AT_ONCE - len(names)):
                names += map(name_of, found)
                at = found[-1] + b"\0"
                if len(names) >= _KEYS_AT_ONCE:
                    yield names, range(0)
                    names, is_cut = [], True
            if is_cut and group + 1 < owned.stop:
                yield names, range(owned.start, group + 1)
                names = []
        yield names, owned

    def _following(self, now: int) -> int:
        """The index time of the next key, when none is due."""
        following = NEVER
        for group in self._spec.key_groups:
            start, end = bound(group, _END, now + 2), bound(group, _END + 1, -NEVER)
            following = min([following, *map(time_of, self.database.names(start, end, 1))])
        return following
