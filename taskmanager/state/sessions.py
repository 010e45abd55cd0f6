"""Session windows of one subtask: a row for each session that has not been purged, found by key, purged by time.

A session is the records of a key of which none is more than `gap` away from the next; its window is from the first to
`gap` behind the last. A record that bridges the gap between two sessions makes one of them.

A partial stands for the records of one key in a pane of the gap's length, which are less than a gap apart: one session
in any case. Its first and last time are two more aggregates, a minimum and a maximum, and are stored as such.

Rows are only added: sessions that grow together, or are purged, leave their place behind until those outnumber the
live ones, which then move together. The sessions of a key are a chain through its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import KeyedAggregate, SessionWindow

from taskmanager.state import firing, stored
from taskmanager.state.aggregates import AggregateColumns, field_of
from taskmanager.state.arrays import numpy_of, one_batch
from taskmanager.state.changes import Changes
from taskmanager.state.columns import Freeze
from taskmanager.state.deadlines import Deadlines
from taskmanager.state.event_clock import EventClock, Reached
from taskmanager.state.firing import Firing, Portion
from taskmanager.state.frozen_windows import FrozenWindows
from taskmanager.state.growing import GrowingArray
from taskmanager.state.intervals import joined_intervals
from taskmanager.state.keys import KeyIndex
from taskmanager.state.layout import HASH, LAST_TIME, ROWS, Fold, with_bounds
from taskmanager.state.store import Merged
from taskmanager.state.window_columns import WINDOW_FIELDS, apart, no_window, window_columns
from taskmanager.state.windows import clamped
from taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
_FEW_ROWS = 4096  # places of what is gone that do not matter
_NONE = -1


class SessionState:
    """See the module. Used from the subtask's own thread. key_count, time_column: as of WindowedState."""

    time_column = f"{LAST_TIME}#{Fold.MAX.value}"

    def __init__(
        self,
        operator: KeyedAggregate,
        schema: pa.Schema,
        max_parallelism: int,
        owned: range = range(0),
        *,
        is_tracked: bool = False,
        clock: EventClock | None = None,
    ) -> None:
        """As WindowedState; is_tracked: it is remembered of which keys sessions change."""
        assert operator.window is not None
        assert isinstance(operator.window.kind, SessionWindow)
        self._operator = operator
        self._bounded = with_bounds(operator)
        self._gap_ms = operator.window.kind.gap_ms
        self._lateness_ms = operator.window.allowed_lateness_ms
        self._max_parallelism = max_parallelism
        self._owned = owned
        self.partial_schema = schema
        self._keys = pa.schema([field_of(schema, name) for name in operator.keys])
        self.key_count = len(self._keys)
        self.clock = EventClock(max_parallelism, owned, self._lateness_ms) if clock is None else clock
        self._changes = Changes(is_tracked)  # of keys
        self._firing = Firing()
        self._begin(AggregateColumns(self._bounded, schema))
        self.schema = pa.schema([*self._keys, *WINDOW_FIELDS, *self._columns.fields[: len(operator.aggregates)]])

    def _begin(self, columns: AggregateColumns) -> None:
        """Without sessions. columns: of the rows to come."""
        self._index = KeyIndex(self._keys)
        self._columns = columns
        self._chains = GrowingArray(np.int64, _NONE)  # key to the first row of its chain
        self._next = GrowingArray(np.int64, _NONE)  # row to the next in the chain
        self._key = GrowingArray(np.int64, _NONE)  # row to key
        self._live = GrowingArray(np.bool_, False)
        self._due = Deadlines(self._gap_ms)  # when a row fires
        self._kept = Deadlines(self._gap_ms)  # when it is purged
        self._gone = 0

    def __len__(self) -> int:
        return len(self._key) - self._gone

    def merge(self, partial: pa.Table) -> Merged:
        """Folds a partial table. Costs by its rows and the sessions of their keys. Raises DataError on overflow.

        Changed are the sessions that event time has passed already and that are still kept. Records that belong to
        none that is kept, and those without a time, are dropped, counted, and aggregated alone: the latter
        without a window.
        """
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        batch = one_batch(partial)
        records = int(pc.sum(batch.column(ROWS)).as_py())
        timeless, batch = apart(batch)
        late = [] if timeless is None else [self._without_time(timeless)]
        if not batch.num_rows:
            return Merged(records, self.schema.empty_table(), late[0], records)
        keys = batch.select(self._keys.names)
        ids = self._index.rows_of(keys, numpy_of(batch, HASH))
        self._chains.extend_to(len(self._index))
        first, last = (numpy_of(batch, name) for name in self._columns.bounds)
        known = self._rows_of(np.unique(ids))
        known_first, known_ends = self._times(known)
        groups, ends = joined_intervals(
            np.concatenate([self._key[known], ids]),
            np.concatenate([known_first, first]),
            np.concatenate([known_ends, last + self._gap_ms]),
        )
        group_of_known, group_of_batch = groups[: len(known)], groups[len(known) :]
        is_late = self._is_gone(ends[group_of_batch], ids)
        if is_late.any():
            late.append(self._too_late(batch.filter(pa.array(is_late))))
        here = np.flatnonzero(~is_late)
        rows = self._placed(known, group_of_known, group_of_batch[here], ids[here], len(ends))
        self._changes.mark(ids[here], len(self._index))
        self._columns.reserve(len(self._key))
        batch = batch.take(pa.array(here))
        self._columns.fold(rows, batch)
        accepted = int(pc.sum(batch.column(ROWS)).as_py() or 0)
        return Merged(
            records, self._filed(np.unique(rows)), pa.concat_tables(late) if late else None, records - accepted
        )

    def advance(self, watermark: int) -> pa.Table:
        """Event time has come to `watermark`: the sessions that are over and have not fired yet.

        The first portion of them, see Fires.
        """
        return self._firing.begin(self._over(max(watermark, self.clock.now)), self.schema)

    def go_on(self) -> pa.Table:
        """See Fires."""
        return self._firing.go_on()

    @property
    def is_settled(self) -> bool:
        """See Fires."""
        return self._firing.is_settled

    @property
    def has_more(self) -> bool:
        """See Fires."""
        return self._firing.has_more

    def _over(self, now: int) -> Iterator[Portion]:
        rows = self._due.passed(now + 1)
        rows = rows[self._live[rows]]
        ids = self._key[rows]
        rows = rows[self._times(rows)[1] - 1 <= np.maximum(self._of(self.clock.reached, ids), now)]
        groups = np.mod(self._index.hashes[self._key[rows]], self._max_parallelism)
        for one in firing.runs(self._owned, [groups], firing.ROWS_AT_ONCE) if self._owned else (self._owned,):
            mine = rows[(groups >= one.start) & (groups < one.stop)] if one != self._owned else rows
            is_last = one.stop == self._owned.stop
            fired = self._table(mine)
            if is_last:
                self._passed(now)
            elif now != MAX_WATERMARK:
                self.clock.come_to(now, one)
            yield Portion(fired, is_last or now != MAX_WATERMARK, is_last)

    def _passed(self, now: int) -> None:
        """All that was due is out."""
        self.clock.advance(now)
        self._purge(self._kept.passed(self.clock.now + 1))

    def let_go(self) -> None:
        """Forgets what an earlier run would have kept longer, before a record joins it. Costs a look at each row."""
        self._purge(np.arange(len(self._key)))

    def freeze(self) -> FrozenWindows:
        """The state as it is now: microseconds, and a copy of a byte for each row."""
        reader = Freeze()
        live, places = self._live.values.copy(), self._key.values
        return FrozenWindows(
            self._index.frozen(),
            self._index.hashes,
            self._columns.freeze(len(places), reader),
            self.about(),
            reader,
            lambda: np.flatnonzero(live),
            self._changes.freeze(len(self._index)),
            places,
        )

    def about(self) -> stored.About:
        """What a snapshot says of itself."""
        until = clamped(self.clock.now + 1 - self._gap_ms - self._lateness_ms)
        return stored.about_windows(
            self._operator, self.partial_schema, self._max_parallelism, self._owned, self.clock, until
        )

    def restore(self, snapshots: Sequence[stored.Stored]) -> None:
        """Replaces the state by what was stored. Call once, before the first merge."""
        self.clock.restore(snapshots)
        self.take_up(stored.joined(snapshots, self.key_count))
        self.let_go()

    def take_up(self, rows: stored.StoredRows) -> None:
        """Sessions to begin with; the keys are those of each."""
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
        """The row of each partial: that of the session it belongs to, joined with others or new. count: of groups."""
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
        changed = np.unique(ids)
        new = row_of[fresh]
        rows = np.concatenate([known[self._live[known]], new])
        self._chains[changed] = _NONE
        self._link(self._key[rows], rows)
        return row_of[groups]

    def _link(self, ids: Array, rows: Array) -> None:
        """Makes the chains of keys anew. rows: all that they have, ids: the key of each."""
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, np.int64)
        following = np.append(rows[1:], _NONE) if len(rows) else rows
        following[starts[1:] - 1] = _NONE
        self._next[rows] = following
        self._chains[ids[starts]] = rows[starts]

    def _filed(self, rows: Array) -> pa.Table:
        """Notes when rows are due; the results of those that event time has passed already."""
        ends = self._times(rows)[1]
        is_over = self._is_over(ends, self._key[rows])
        self._due.add(rows[~is_over], ends[~is_over])
        self._kept.add(rows, ends + self._lateness_ms)
        return self._table(rows[is_over])

    def _purge(self, rows: Array) -> None:
        """Forgets those of some rows that are not kept any more."""
        rows = rows[self._live[rows]]
        rows = rows[self._is_gone(self._times(rows)[1], self._key[rows])]
        if len(rows):
            self._drop(rows)
            ids = np.unique(self._key[rows])
            left = self._rows_of(ids)
            self._chains[ids] = _NONE
            self._link(self._key[left], left)
        if max(self._gone, len(self._index) - len(self)) > max(len(self), _FEW_ROWS):
            self._move_together()

    def _drop(self, rows: Array) -> None:
        self._live[rows] = False
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
        ends = self._times(moved)[1]
        is_waiting = ~self._is_over(ends, places)
        self._due.add(moved[is_waiting], ends[is_waiting])
        self._kept.add(moved, ends + self._lateness_ms)

    def _too_late(self, batch: pa.RecordBatch) -> pa.Table:
        """The aggregates of a partial alone."""
        alone, rows = self._alone(batch)
        return self._with_times(batch.select(self._keys.names), alone, rows)

    def _without_time(self, batch: pa.RecordBatch) -> pa.Table:
        """The same of records without a time: they are in no session."""
        alone, rows = self._alone(batch)
        results = alone.results(rows)[: len(self._operator.aggregates)]
        columns = [*batch.select(self._keys.names).columns, *no_window(len(rows)), *results]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _alone(self, batch: pa.RecordBatch) -> tuple[AggregateColumns, Array]:
        rows = np.arange(batch.num_rows)
        alone = AggregateColumns(self._bounded, self.partial_schema)
        alone.reserve(len(rows))
        alone.fold(rows, batch)
        return alone, rows

    def _table(self, rows: Array) -> pa.Table:
        if not len(rows):
            return self.schema.empty_table()
        return self._with_times(self._index.keys_at(self._key[rows]), self._columns, rows)

    def _with_times(self, keys: pa.RecordBatch, columns: AggregateColumns, rows: Array) -> pa.Table:
        first, last = columns.bounds_of(rows)
        times = window_columns(first, last + self._gap_ms)
        results = columns.results(rows)[: len(self._operator.aggregates)]
        return pa.Table.from_arrays([*keys.columns, *times, *results], schema=self.schema)
