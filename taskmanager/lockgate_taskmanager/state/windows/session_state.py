"""Session windows of one subtask: one row for each session that has not been purged, found by key, purged by time.

A session is a sequence of records of a key of which none is more than `gap` away from the next; its window ends `gap`
after the last record. A record that bridges the gap between two sessions merges them.

A partial covers the records of one key in a pane as long as the gap, so they belong to one session in any case. Its
first and last time are two additional aggregates, a minimum and a maximum, and are stored as such.

Rows are only appended. Merged and purged sessions leave dead rows behind; when those outnumber the live ones, the store
is compacted. The sessions of a key form a chain through its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import SessionWindow, StateBackend

from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns
from lockgate_taskmanager.state.columns.arrays import distinct, numpy_of, require_values
from lockgate_taskmanager.state.columns.deadlines import NEVER, Due
from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.columns.growing import GrowingArray
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.event_clock import EventClock, Reached
from lockgate_taskmanager.state.firing import Portion
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.heap.frozen_rows import FrozenRows
from lockgate_taskmanager.state.layout import HASH, SESSION_END, SESSION_FIRST
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.intervals import joined_intervals
from lockgate_taskmanager.state.windows.shape import clamped
from lockgate_taskmanager.state.windows.window_columns import window_columns
from lockgate_taskmanager.state.windows.window_state import WindowState
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
_FEW_ROWS = 4096  # no compaction for fewer dead rows
_NONE = -1


class SessionState(WindowState):
    """Sessions in memory. Used from the subtask's own thread."""

    def __init__(
        self,
        spec: StoreSpec,
        schema: pa.Schema,
        choice: StateBackend | None = None,
        *,
        clock: EventClock | None = None,
    ) -> None:
        """clock: shared with the store that holds these rows in a database; None: a new one."""
        super().__init__(spec, schema, choice, clock)
        assert spec.aggregation.window is not None
        assert isinstance(spec.aggregation.window.kind, SessionWindow)
        self._gap_ms = spec.aggregation.window.kind.gap_ms
        self._lateness_ms = spec.aggregation.window.allowed_lateness_ms
        self.key_count = len(self._keys)
        self._begin(self._columns)

    def _begin(self, columns: AggregateColumns) -> None:
        """Without sessions. columns: of the rows to come."""
        self._index = KeyIndex(self._keys)
        self._columns = columns
        self._chains = GrowingArray(np.int64, _NONE)  # key to the first row of its chain
        self._next = GrowingArray(np.int64, _NONE)  # row to the next in the chain
        self._key = GrowingArray(np.int64, _NONE)  # row to key
        self._live = GrowingArray(np.bool_, False)
        # Narrow, as an advance visits the rows of one width that are not due yet; but each width with rows costs, too
        width_ms = max(self._gap_ms // 60, min(self._gap_ms, 1000))
        self._due = Due(width_ms)  # when a row fires
        self._kept = Due(width_ms)  # when it is purged
        self._gone = 0

    def __len__(self) -> int:
        return len(self._key) - self._gone

    def next_due_ms(self) -> int:
        """No session ends before this; NEVER when there is none."""
        return self._due.next()

    def _fold(self, batch: pa.RecordBatch) -> tuple[pa.Table, Array]:
        ids = self._index.rows_of(batch.select(self._keys.names), numpy_of(batch, HASH))
        self._chains.extend_to(len(self._index))
        first, last = (numpy_of(batch, name) for name in self._columns.bounds)
        known = self._rows_of(distinct(ids))
        known_first, known_ends = self._times(known)
        groups, ends = joined_intervals(
            np.concatenate([self._key[known], ids]),
            np.concatenate([known_first, first]),
            np.concatenate([known_ends, last + self._gap_ms]),
        )
        group_of_known, group_of_batch = groups[: len(known)], groups[len(known) :]
        is_late = self._is_gone(ends[group_of_batch], ids)
        here = np.flatnonzero(~is_late)
        rows = self._placed(known, group_of_known, group_of_batch[here], ids[here], len(ends))
        self._changes.mark(ids[here], len(self._index))
        self._columns.reserve(len(self._key))
        self._columns.fold(rows, batch.take(pa.array(here)))
        changed = distinct(rows)
        return self._table(changed[self._filed(changed)]), is_late

    def _fires(self, now_ms: int) -> Iterator[Portion]:
        rows = self._due.passed(now_ms + 1)
        groups = np.mod(self._index.hashes[self._key[rows]], self._max_parallelism)
        for run in firing.runs(self._owned, [groups], firing.ROWS_AT_ONCE) if self._owned else (self._owned,):
            mine = rows[(groups >= run.start) & (groups < run.stop)] if run != self._owned else rows
            is_last = run.stop == self._owned.stop
            fired = self._table(mine)
            if is_last:
                self._passed(now_ms)
            elif now_ms != MAX_WATERMARK:
                self.clock.come_to(now_ms, run)
            yield Portion(fired, is_last or now_ms != MAX_WATERMARK, is_last)

    def let_go(self) -> None:
        """Drops sessions that an earlier run kept longer, before a record can extend them. Visits each row."""
        self._let_go(np.arange(len(self._key)))

    def freeze(self) -> FrozenRows:
        reader = Freeze()
        live, places = self._live.values.copy(), self._key.values
        return FrozenRows(
            keys=self._index.frozen(),
            hashes=self._index.hashes,
            columns=self._columns.freeze(len(places), reader),
            about=self.about(),
            changed=self._changes.freeze(len(self._index)),
            reader=reader,
            live=lambda: np.flatnonzero(live),
            places=places,
        )

    def restore(self, snapshots: Sequence[state_file.Stored]) -> None:
        super().restore(snapshots)
        self.let_go()

    def take_up(self, rows: state_file.StoredRows) -> None:
        """Sessions to begin with; the keys are those of each."""
        for parts in rows.parts:
            require_values(parts, SESSION_FIRST, SESSION_END)
        self._columns.restore(rows.parts)
        found = [np.zeros(0, np.int64)]
        at = 0
        for keys in rows.keys:
            found.append(self._index.rows_of(keys, rows.hashes[at : at + keys.num_rows]))
            at += keys.num_rows
        ids = np.concatenate(found)
        self._chains.extend_to(len(self._index))
        self._changes.restored(len(self._index))
        added = self._added(ids)
        self._columns.reserve(len(added))
        self._link(ids, added)
        self._filed(added)

    def _rows_of(self, ids: Array) -> Array:
        """The live rows of some distinct keys."""
        found = []
        rows = self._chains[ids]
        while len(rows := rows[rows != _NONE]):
            found.append(rows)
            rows = self._next[rows]
        every = np.concatenate([np.zeros(0, np.int64), *found])
        return every[self._live[every]]

    def _times(self, rows: Array) -> tuple[Array, Array]:
        """Start and end of the windows of some rows."""
        first, last = self._columns.bounds_of(rows)
        return first, last + self._gap_ms

    def _is_over(self, ends: Array, ids: Array) -> Array:
        """Mask: event time has passed these ends. ids: of the keys."""
        return ends <= self._of(self.clock.reached, ids) + 1

    def _is_gone(self, ends: Array, ids: Array) -> Array:
        """Mask: these sessions are not kept any more."""
        return ends + self._lateness_ms <= self._of(self.clock.kept, ids) + 1

    def _of(self, reached: Reached, ids: Array) -> int | Array:
        return reached.least if reached.groups is None else reached.of(self._index.hashes[ids])

    def _added(self, ids: Array) -> Array:
        """New rows for keys."""
        rows = np.arange(len(self._key), len(self._key) + len(ids))
        self._key.append(ids)
        self._next.extend_to(len(self._key))
        self._live.append(np.ones(len(ids), np.bool_))
        return rows

    def _placed(self, known: Array, known_groups: Array, groups: Array, ids: Array, count: int) -> Array:
        """The row of each partial: its session's, merged with others or new. count: of groups."""
        row_of = np.full(count, _NONE, np.int64)
        row_of[known_groups] = known  # of several the last stays, and takes the others in
        touched = np.zeros(count, np.bool_)
        touched[groups] = True
        others = touched[known_groups] & (row_of[known_groups] != known)
        fresh, first = np.unique(groups[row_of[groups] == _NONE], return_index=True)
        row_of[fresh] = self._added(ids[row_of[groups] == _NONE][first])
        self._columns.reserve(len(self._key))
        self._columns.take_in(row_of[known_groups[others]], known[others])
        self._drop(known[others])
        changed = distinct(ids)
        new = row_of[fresh]
        rows = np.concatenate([known[self._live[known]], new])
        self._chains[changed] = _NONE
        self._link(self._key[rows], rows)
        return row_of[groups]

    def _link(self, ids: Array, rows: Array) -> None:
        """Rebuilds the chains of keys. rows: all their rows; ids: the key of each row."""
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, np.int64)
        following = np.append(rows[1:], _NONE) if len(rows) else rows
        following[starts[1:] - 1] = _NONE
        self._next[rows] = following
        self._chains[ids[starts]] = rows[starts]

    def _filed(self, rows: Array) -> Array:
        """Records when rows are due. Returns a mask of those that event time has already passed."""
        ends = self._times(rows)[1]
        is_over = self._is_over(ends, self._key[rows])
        self._due.set(rows, np.where(is_over, NEVER, ends))
        self._kept.set(rows, ends + self._lateness_ms)
        return is_over

    def _purge(self) -> None:
        self._let_go(self._kept.passed(self.clock.now + 1))

    def _let_go(self, rows: Array) -> None:
        """Drops those rows that are not kept any more."""
        rows = rows[self._live[rows]]
        rows = rows[self._is_gone(self._times(rows)[1], self._key[rows])]
        if len(rows):
            self._drop(rows)
            ids = distinct(self._key[rows])
            left = self._rows_of(ids)
            self._chains[ids] = _NONE
            self._link(self._key[left], left)
        if max(self._gone, len(self._index) - len(self)) > max(len(self), _FEW_ROWS):
            self._move_together()

    def _drop(self, rows: Array) -> None:
        self._live[rows] = False
        for index in (self._due, self._kept):
            index.set(rows, np.full(len(rows), NEVER))
        self._gone += len(rows)

    def _move_together(self) -> None:
        rows = np.flatnonzero(self._live.values)
        ids, places = np.unique(self._key[rows], return_inverse=True)
        index = self._index
        self._begin(self._columns.added_up([(np.arange(len(rows)), rows)], len(rows)))
        index.keep(ids)
        self._index = index
        self._changes.moved(ids, is_complete=True)  # a key without sessions has none that event time has not purged
        self._chains.extend_to(len(ids))
        moved = self._added(places)
        self._link(places, moved)
        self._filed(moved)

    def _bounds_of_late(self, batch: pa.RecordBatch, alone: AggregateColumns) -> tuple[Array, Array]:
        first, last = alone.bounds_of(np.arange(batch.num_rows))
        return first, last + self._gap_ms

    def _table(self, rows: Array) -> pa.Table:
        """The results of some sessions."""
        if not len(rows):
            return self.schema.empty_table()
        return self._as_table(
            self._index.keys_at(self._key[rows]), window_columns(*self._times(rows)), self._columns, rows
        )

    def _purged_until(self) -> int:
        return clamped(self.clock.now + 1 - self._gap_ms - self._lateness_ms)
