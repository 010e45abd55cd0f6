"""Windowed aggregates of one subtask: a row for each key and pane, found by key, purged by time.

    partial table --merge---> late updates of windows that have fired, what came too late
    watermark ----advance--> results of the windows that event time has passed; panes that no window needs are purged

Rows are kept in lists by pane, so a batch costs by its rows and a watermark by what fires. Purged rows leave their
place behind; when those outnumber the live ones, the live ones move together, which costs no more than what was purged.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import KeyedAggregate

from taskmanager.state import firing, stored
from taskmanager.state.aggregates import AggregateColumns, field_of
from taskmanager.state.arrays import numpy_of, one_batch
from taskmanager.state.changes import Changes
from taskmanager.state.columns import Freeze
from taskmanager.state.event_clock import EventClock, Reached
from taskmanager.state.firing import Firing, Portion
from taskmanager.state.frozen_windows import FrozenWindows
from taskmanager.state.hashing import mixed
from taskmanager.state.keys import KeyIndex, same_keys
from taskmanager.state.layout import HASH, PANE, ROWS, WINDOW_END
from taskmanager.state.pane_rows import PaneRows
from taskmanager.state.store import Merged
from taskmanager.state.window_columns import WINDOW_FIELDS, apart, no_window, window_columns
from taskmanager.state.windows import shape_of
from taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
_FEW_ROWS = 4096  # places of purged rows that do not matter
_ROWS_AT_ONCE = 1_000_000  # of panes that are added up together, which bounds the memory of a firing
RowsIn = Callable[[int], Array]  # the rows of a pane


class WindowedState:
    """See the module. Used from the subtask's own thread.

    key_count: number of key columns of stored rows; time_column: by which they are purged.
    """

    time_column = PANE

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
        """schema: of the partial table, see `layout`; owned: key groups of the subtask, which its snapshots tell.

        is_tracked: it is remembered which rows change, for increments; clock: to go by, one of its own where None.

        Raises UserError when a column or type does not fit.
        """
        assert operator.window is not None
        self._operator = operator
        self._shape = shape_of(operator.window)
        self._max_parallelism = max_parallelism
        self._owned = owned
        self.partial_schema = schema
        self._keys = pa.schema([field_of(schema, name) for name in operator.keys])
        self._index = KeyIndex(self._keys.append(pa.field(PANE, pa.int64())))
        self.key_count = len(self._index.schema)
        self._hashes = np.zeros(1024, np.int64)  # of the keys alone, by row
        self._columns = AggregateColumns(operator, schema)
        self._rows: dict[int, list[Array]] = {}  # by pane
        self._panes: list[int] = []  # those with rows, in order
        self._purged = 0
        self._changes = Changes(is_tracked)
        self._firing = Firing()
        lateness_ms = operator.window.allowed_lateness_ms
        self.clock = EventClock(max_parallelism, owned, lateness_ms) if clock is None else clock
        self.schema = pa.schema([*self._keys, *WINDOW_FIELDS, *self._columns.fields])

    def __len__(self) -> int:
        return len(self._index) - self._purged

    def merge(self, partial: pa.Table) -> Merged:
        """Folds a partial table. Costs by its rows, not by what is held. Raises DataError on overflow.

        Changed are the windows that have fired before and are still kept. Records for windows that are no longer kept
        and those without a time are dropped, counted, and aggregated alone: the latter without a window.
        """
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        batch = one_batch(partial)
        records = int(pc.sum(batch.column(ROWS)).as_py())
        timeless, batch = apart(batch)
        is_late = self._shape.is_expired(numpy_of(batch, PANE), self.clock.kept.of(numpy_of(batch, HASH)))
        late = [] if timeless is None else [self._without_time(timeless)]
        if is_late.any():
            late.append(self._too_late(batch.filter(pa.array(is_late))))
            batch = batch.filter(pa.array(~is_late))
        accepted = int(pc.sum(batch.column(ROWS)).as_py() or 0)
        changed = self._fold(batch) if batch.num_rows else self.schema.empty_table()
        return Merged(records, changed, pa.concat_tables(late) if late else None, records - accepted)

    def advance(self, watermark: int) -> pa.Table:
        """Event time has come to `watermark`: the windows that end at or before watermark + 1 and have not fired yet.

        The first portion of them, see Fires. Raises DataError on overflow.
        """
        return self._firing.begin(self._due(max(watermark, self.clock.now)), self.schema)

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

    def fire(self, ends: Sequence[int], before: Reached) -> pa.Table:
        """The results of whole windows. ends: in order; before: how far event time had come: what it had passed is out.

        Raises DataError on overflow.
        """
        fired = (self._fire(some, before, self._rows_in) for some in self._portions(ends, self._rows_in))
        return pa.concat_tables([self.schema.empty_table(), *fired])

    def _due(self, now: int) -> Iterator[Portion]:
        before = self.clock.reached
        first = bisect.bisect_right(self._panes, self._shape.fired_until(before.least))
        waiting = self._panes[first : bisect.bisect_right(self._panes, now)]
        ends = self._shape.due(waiting, before.least, now)
        for groups, rows_in in self._by_groups(ends):
            portions = list(self._portions(ends, rows_in))
            for number, some in enumerate(portions, start=1):
                fired = self._fire(some, before, rows_in)
                is_whole = number == len(portions)
                is_last = is_whole and groups.stop == self._owned.stop
                if is_last:
                    self._passed(now)
                elif is_whole and now != MAX_WATERMARK:
                    self.clock.come_to(now, groups)
                yield Portion(fired, is_last or (is_whole and now != MAX_WATERMARK), is_last)
        self._passed(now)

    def _passed(self, now: int) -> None:
        """All that was due is out."""
        self.clock.advance(now)
        self._purge()

    def _by_groups(self, ends: Sequence[int]) -> Iterator[tuple[range, RowsIn]]:
        """Key groups together that have not too many rows in these windows, and their rows by pane."""
        panes = sorted({pane for end in ends for pane in self._shape.panes(end) if pane in self._rows})
        rows = {pane: self._rows_in(pane) for pane in panes}
        fold = self._shape.size_ms // self._shape.slide_ms or 1
        if fold * sum(map(len, rows.values())) <= firing.ROWS_AT_ONCE or len(self._owned) < 2:
            if ends:
                yield self._owned, self._rows_in
            return
        groups = {pane: np.mod(self._hashes[mine], self._max_parallelism) for pane, mine in rows.items()}
        together = firing.runs(self._owned, list(groups.values()), firing.ROWS_AT_ONCE // fold)
        starts = [one.start for one in together]
        cut: dict[int, list[Array]] = {}
        for pane, mine in rows.items():
            order = np.argsort(groups[pane], kind="stable")
            cut[pane] = np.split(mine[order], np.searchsorted(groups[pane][order], starts[1:]))
        nothing = np.zeros(0, np.int64)
        for number, one in enumerate(together):
            mine = {pane: some[number] for pane, some in cut.items()}
            yield one, lambda pane, mine=mine: mine.get(pane, nothing)  # type: ignore[misc]

    def beside(self, panes: Array, hashes: Array, there: Sequence[int]) -> Iterator[tuple[int, Array]]:
        """What a merge reads besides its own rows: a pane, and the places of those rows whose keys it reads there.

        panes, hashes: of the rows of the partial; there: the panes that have rows at all, in order.
        """
        if not len(panes) or self._shape.size_ms == self._shape.pane_ms or not self._shape.lateness_ms:
            return
        first, last = self._kept_ends(panes, hashes)
        start = first - self._shape.size_ms
        stop = np.where(first <= last, last, start)
        for pane in there[bisect.bisect_left(there, start.min()) : bisect.bisect_left(there, stop.max())]:
            touched = np.flatnonzero((start <= pane) & (pane < stop))
            if len(touched):
                yield pane, touched

    def freeze(self) -> FrozenWindows:
        """The state as it is now. Microseconds, whatever its size."""
        reader, about = Freeze(), self.about()
        count = len(self._index)
        keys, until = self._index.frozen(), about.purged_until

        def live() -> Array:
            panes = [numpy_of(batch, PANE) for batch in keys.batches]
            return np.flatnonzero(np.concatenate(panes or [np.zeros(0, np.int64)]) > until)

        columns, changed = self._columns.freeze(count, reader), self._changes.freeze(count)
        return FrozenWindows(keys, self._hashes[:count], columns, about, reader, live, changed)

    def about(self) -> stored.About:
        """What a snapshot says of itself."""
        until = self._shape.expired_until(self.clock.now)
        return stored.about_windows(
            self._operator, self.partial_schema, self._max_parallelism, self._owned, self.clock, until
        )

    def restore(self, snapshots: Sequence[stored.Stored]) -> None:
        """Replaces the state by what was stored. Call once, before the first merge."""
        self.clock.restore(snapshots)
        self.take_up(stored.joined(snapshots, self.key_count))

    def take_up(self, rows: stored.StoredRows) -> None:
        """Rows to begin with. Their keys are distinct, with the pane; the hashes are of the keys without it."""
        panes = np.concatenate([np.zeros(0, np.int64), *(numpy_of(one, PANE) for one in rows.keys)])
        self._index.restore(rows.keys, mixed(rows.hashes, panes))
        self._columns.restore(rows.parts)
        self._columns.reserve(len(panes))
        self._hashes = rows.hashes
        self._changes.restored(len(panes))
        self._file(np.arange(len(panes)), panes)

    def _fold(self, batch: pa.RecordBatch) -> pa.Table:
        known = len(self._index)
        hashes, panes = numpy_of(batch, HASH), numpy_of(batch, PANE)
        keys = batch.select(self._index.schema.names)
        rows = self._index.rows_of(keys, mixed(hashes, panes))
        count = len(self._index)
        if count > len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.zeros(max(count, len(self._hashes)), np.int64)])
        is_new = rows >= known
        self._hashes[rows[is_new]] = hashes[is_new]
        self._columns.reserve(count)
        self._changes.mark(rows, count)
        last = self._columns.fold(rows, batch)
        if last is not None:
            rows, panes, is_new, keys = rows[last], panes[last], is_new[last], keys.take(pa.array(last))
        self._file(rows[is_new], panes[is_new])
        return self._fired_again(keys, rows, panes)

    def _file(self, rows: Array, panes: Array) -> None:
        """Notes new rows under their panes."""
        if not len(rows):
            return
        order = np.argsort(panes, kind="stable")
        present, starts = np.unique(panes[order], return_index=True)
        for pane, mine in zip(present.tolist(), np.split(rows[order], starts[1:]), strict=True):
            if pane not in self._rows:
                self._rows[pane] = []
                bisect.insort(self._panes, pane)
            self._rows[pane].append(mine)

    def _rows_in(self, pane: int) -> Array:
        """The rows of a pane, in one piece from now on."""
        pieces = self._rows.get(pane, [])
        if len(pieces) > 1:
            pieces[:] = [np.concatenate(pieces)]
        return pieces[0] if pieces else np.zeros(0, np.int64)

    def _fired_again(self, keys: pa.RecordBatch, rows: Array, panes: Array) -> pa.Table:
        """The windows of some distinct rows, just changed, that have fired and are still kept."""
        first, last = self._kept_ends(panes, self._hashes[rows])
        counts = np.maximum((last - first) // self._shape.slide_ms + 1, 0)
        places = np.repeat(np.arange(len(rows)), counts)
        ends = first[places] + (np.arange(len(places)) - (np.cumsum(counts) - counts)[places]) * self._shape.slide_ms
        if self._shape.size_ms == self._shape.pane_ms or not len(places):
            return self._table(rows[places], ends, self._columns, rows[places])
        alone = keys.select(self._keys.names)
        who = KeyIndex(self._keys).rows_of(alone, self._hashes[rows])  # rows of one key have one number
        found = self._found(alone, rows, panes, who)
        order = np.lexsort((ends, who[places]))
        is_next = np.diff(who[places][order], prepend=-1).astype(bool) | np.diff(ends[order], prepend=0).astype(bool)
        once = order[is_next]  # several rows may be in one window
        changed = []
        at_once = max(1, _ROWS_AT_ONCE * self._shape.pane_ms // self._shape.size_ms)
        for start in range(0, len(once), at_once):
            mine = once[start : start + at_once]
            folds = (found.among(who[places[mine]], ends[mine] + back) for back in self._shape.panes(0))
            total = self._columns.added_up(folds, len(mine))
            changed.append(self._table(rows[places[mine]], ends[mine], total, np.arange(len(mine))))
        return pa.concat_tables(changed)

    def _kept_ends(self, panes: Array, hashes: Array) -> tuple[Array, Array]:
        """See WindowShape. hashes: of the keys."""
        return self._shape.kept_ends(panes, self.clock.reached.of(hashes), self.clock.kept.of(hashes))

    def _found(self, keys: pa.RecordBatch, rows: Array, panes: Array, who: Array) -> PaneRows:
        """The rows of some keys in all panes of the windows that `_fired_again` tells. who: a number for each key."""
        hashes = self._hashes[rows]
        pieces = []
        for pane, touched in self.beside(panes, hashes, self._panes):
            each, once = np.unique(who[touched], return_index=True)
            mine = touched[once]
            columns = [*keys.take(pa.array(mine)).columns, pa.array(np.full(len(mine), pane))]
            there = pa.RecordBatch.from_arrays(columns, schema=self._index.schema)
            known = self._index.known_rows_of(there, mixed(hashes[mine], there.column(len(self._keys)).to_numpy()))
            is_known = known >= 0
            pieces.append((each[is_known], np.full(is_known.sum(), pane), known[is_known]))
        return PaneRows(*(np.concatenate(one) for one in zip(*pieces, strict=True)))

    def _portions(self, ends: Sequence[int], rows_in: RowsIn) -> Iterator[list[int]]:
        """Ends of windows, as many together as have some number of rows."""
        portion: list[int] = []
        count = 0
        for end in ends:
            portion.append(end)
            count += sum(len(rows_in(pane)) for pane in self._shape.panes(end))
            if count >= _ROWS_AT_ONCE:
                yield portion
                portion, count = [], 0
        if portion:
            yield portion

    def _fire(self, ends: Sequence[int], before: Reached, rows_in: RowsIn) -> pa.Table:
        """The results of whole windows. before: how far event time had come; what it had passed has fired."""
        pieces = []
        for number in range(self._shape.size_ms // self._shape.pane_ms):  # first panes of all, second panes of all ...
            found = [rows_in(self._shape.panes(end)[number]) for end in ends]
            rows, window_ends = np.concatenate(found), np.repeat(np.array(ends, np.int64), list(map(len, found)))
            if before.groups is not None:
                has_fired = self._shape.is_over(window_ends, before.of(self._hashes[rows]))
                rows, window_ends = rows[~has_fired], window_ends[~has_fired]
            pieces.append((rows, window_ends))
        if len(pieces) == 1:
            rows, window_ends = pieces[0]
            return self._table(rows, window_ends, self._columns, rows)
        return self._added_up(pieces)

    def _added_up(self, pieces: Sequence[tuple[Array, Array]]) -> pa.Table:
        """One result for each key and window. pieces: rows and the ends of their windows, in each piece distinct."""
        rows = np.concatenate([one for one, _ in pieces])
        ends = np.concatenate([one for _, one in pieces])
        groups, first = self._grouped(rows, ends)
        bounds = np.cumsum([len(one) for one, _ in pieces])[:-1]
        folds = zip(np.split(groups, bounds), np.split(rows, bounds), strict=True)
        total = self._columns.added_up(folds, len(first))
        return self._table(rows[first], ends[first], total, np.arange(len(first)))

    def _grouped(self, rows: Array, ends: Array) -> tuple[Array, Array]:
        """Numbers the groups of equal key and window: the group of each row, and the first row of each group."""
        names = mixed(self._hashes[rows], ends)
        _, first, groups = np.unique(names, return_index=True, return_inverse=True)
        keys = self._index.keys_at(rows).select(self._keys.names)
        stand_in = first[groups]
        if (ends[stand_in] == ends).all() and same_keys(keys, keys.take(pa.array(stand_in))).all():
            return groups, first
        table = pa.Table.from_batches([keys]).append_column(WINDOW_END, pa.array(ends))
        apart: dict[str, int] = {}  # different keys with one hash: hardly ever
        groups = np.array([apart.setdefault(repr(row), len(apart)) for row in table.to_pylist()], np.int64)
        return groups, np.unique(groups, return_index=True)[1]

    def _too_late(self, batch: pa.RecordBatch) -> pa.Table:
        """The aggregates of a partial alone, each row for the last window that its pane is in."""
        ends = self._shape.last_end(numpy_of(batch, PANE))
        return self._with_times(batch.select(self._keys.names), ends, self._alone(batch))

    def _without_time(self, batch: pa.RecordBatch) -> pa.Table:
        """The aggregates of records without a time alone: they are in no window."""
        columns = [*batch.select(self._keys.names).columns, *no_window(batch.num_rows), *self._alone(batch)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _alone(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The aggregates of each row of a partial."""
        rows = np.arange(batch.num_rows)
        alone = AggregateColumns(self._operator, self.partial_schema)
        alone.reserve(len(rows))
        alone.fold(rows, batch)
        return alone.results(rows)

    def _table(self, rows: Array, ends: Array, columns: AggregateColumns, at: Array) -> pa.Table:
        """Results. rows: of the keys; columns, at: where the aggregates are."""
        return self._with_times(self._index.keys_at(rows).select(self._keys.names), ends, columns.results(at))

    def _with_times(self, keys: pa.RecordBatch, ends: Array, results: list[pa.Array]) -> pa.Table:
        times = window_columns(ends - self._shape.size_ms, ends)
        return pa.Table.from_arrays([*keys.columns, *times, *results], schema=self.schema)

    def _purge(self) -> None:
        """Forgets the panes that no window needs."""
        expired = 0
        while expired < len(self._panes) and self._shape.is_expired(self._panes[expired], self.clock.now):
            self._purged += sum(map(len, self._rows.pop(self._panes[expired])))
            expired += 1
        del self._panes[:expired]
        if self._purged > max(len(self), _FEW_ROWS):
            self._move_together()

    def _move_together(self) -> None:
        live = np.sort(np.concatenate([np.zeros(0, np.int64), *(self._rows_in(pane) for pane in self._panes)]))
        places = np.zeros(len(self._index), np.int64)
        places[live] = np.arange(len(live))
        self._columns = self._columns.added_up([(np.arange(len(live)), live)], len(live))
        self._index.keep(live)
        self._hashes = np.append(self._hashes[live], np.zeros(1024, np.int64))
        self._rows = {pane: [places[self._rows_in(pane)]] for pane in self._panes}
        self._changes.moved(live, is_complete=True)  # of purged rows the watermark tells
        self._purged = 0
