"""Windowed aggregates of one subtask: one row for each key and pane, or window, found by key, purged by time.

Rows are listed by pane, so the cost of a batch depends on its rows, that of a watermark on what fires. Purged rows
leave gaps; when those outnumber the live rows, the store is compacted, which costs no more than the purges did.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns
from lockgate_taskmanager.state.columns.arrays import by_value, numpy_of, require_values
from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.columns.growing import GrowingArray
from lockgate_taskmanager.state.columns.hashing import mixed
from lockgate_taskmanager.state.columns.keys import KeyIndex, same_keys
from lockgate_taskmanager.state.event_clock import EventClock, Reached
from lockgate_taskmanager.state.firing import Portion
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.heap.frozen_rows import FrozenRows
from lockgate_taskmanager.state.layout import HASH, PANE, WINDOW_END
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.pane_rows import PaneRows, in_turn
from lockgate_taskmanager.state.windows.shape import rows_shape_of
from lockgate_taskmanager.state.windows.window_columns import window_columns
from lockgate_taskmanager.state.windows.window_state import WindowState
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
_FEW_ROWS = 4096  # no compaction for fewer purged rows
_ROWS_AT_ONCE = 1_000_000  # of panes that are added up together, which bounds the memory of a firing
Held = Mapping[int, Array]  # panes that have rows, in order, and these


class PaneState(WindowState):
    """Panes in memory. Used from the subtask's own thread."""

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
        self._shape = rows_shape_of(spec.aggregation.window)
        self._index = KeyIndex(self._keys.append(pa.field(PANE, pa.int64())))
        self.key_count = len(self._index.schema)
        self._hashes = GrowingArray(np.int64, 0)  # of the keys alone, by row
        self._rows: dict[int, list[Array]] = {}  # by pane
        self._panes: list[int] = []  # those with rows, in order
        self._purged = 0

    def __len__(self) -> int:
        return len(self._index) - self._purged

    def next_due_ms(self) -> int:
        """No window ends before this; NEVER when there is none."""
        due = self._shape.next_due(self._panes, self.clock.reached.least)
        return NEVER if due is None else due

    def fire(self, ends: Sequence[int], before: Reached) -> pa.Table:
        """The results of complete windows. ends: in order; before: earlier event time, whose windows have fired.

        Raises DataError on overflow.
        """
        held = self._held(ends)
        fired = (self._fire(some, before, held) for some in self._portions(ends, held))
        return pa.concat_tables([self.schema.empty_table(), *fired])

    def _fires(self, now_ms: int) -> Iterator[Portion]:
        before = self.clock.reached
        first = bisect.bisect_right(self._panes, self._shape.fired_until(before.least))
        waiting = self._panes[first : bisect.bisect_right(self._panes, now_ms)]
        ends = self._shape.due(waiting, before.least, now_ms)
        for groups, held in self._by_groups(ends):
            portions = list(self._portions(ends, held))
            for number, some in enumerate(portions, start=1):
                fired = self._fire(some, before, held)
                is_whole = number == len(portions)
                is_last = is_whole and groups.stop == self._owned.stop
                if is_last:
                    self._passed(now_ms)
                elif is_whole and now_ms != MAX_WATERMARK:
                    self.clock.come_to(now_ms, groups)
                yield Portion(fired, is_last or (is_whole and now_ms != MAX_WATERMARK), is_last)
        self._passed(now_ms)

    def _held(self, ends: Sequence[int]) -> Held:
        """The rows of all panes of some windows, in order of their ends. Cost grows with the panes that have rows."""
        if not ends:
            return {}
        first = bisect.bisect_left(self._panes, self._shape.start(ends[0]))
        return {pane: self._rows_in(pane) for pane in self._panes[first : bisect.bisect_left(self._panes, ends[-1])]}

    def _by_groups(self, ends: Sequence[int]) -> Iterator[tuple[range, Held]]:
        """Ranges of key groups with a bounded number of rows in these windows, and their rows."""
        held = self._held(ends)
        fold = self._shape.size_ms // self._shape.slide_ms or 1
        if fold * sum(map(len, held.values())) <= firing.ROWS_AT_ONCE or len(self._owned) < 2:
            if ends:
                yield self._owned, held
            return
        groups = {pane: np.mod(self._hashes[mine], self._max_parallelism) for pane, mine in held.items()}
        together = firing.runs(self._owned, list(groups.values()), firing.ROWS_AT_ONCE // fold)
        starts = [run.start for run in together]
        cut: dict[int, list[Array]] = {}
        for pane, mine in held.items():
            order = np.argsort(groups[pane], kind="stable")
            cut[pane] = np.split(mine[order], np.searchsorted(groups[pane][order], starts[1:]))
        for number, run in enumerate(together):
            yield run, {pane: some[number] for pane, some in cut.items()}

    def beside(self, panes: Array, hashes: Array, there: Sequence[int]) -> Iterator[tuple[int, Array]]:
        """What a merge reads besides its own rows: pairs of a pane and the positions of the rows whose keys it reads.

        panes, hashes: of the rows of the partial; there: the panes that have rows at all, in order.
        """
        if not len(panes) or self._shape.size_ms == self._shape.pane_ms or not self._shape.lateness_ms:
            return
        first, last = self._kept_ends(panes, hashes)
        start: Array = self._shape.start(first)
        stop: Array = np.where(first <= last, last, start)
        for pane in there[bisect.bisect_left(there, start.min()) : bisect.bisect_left(there, stop.max())]:
            touched = np.flatnonzero((start <= pane) & (pane < stop))
            if len(touched):
                yield pane, touched

    def freeze(self) -> FrozenRows:
        reader, about = Freeze(), self.about()
        count = len(self._index)
        keys, until = self._index.frozen(), about.purged_until

        def live() -> Array:
            panes = [numpy_of(batch, PANE) for batch in keys.batches]
            return np.flatnonzero(np.concatenate(panes or [np.zeros(0, np.int64)]) > until)

        return FrozenRows(
            keys=keys,
            hashes=self._hashes.values,
            columns=self._columns.freeze(count, reader),
            about=about,
            changed=self._changes.freeze(count),
            reader=reader,
            live=live,
        )

    def take_up(self, rows: state_file.StoredRows) -> None:
        """Rows to begin with. Their keys are distinct, with the pane; the hashes are of the keys without it."""
        for keys in rows.keys:
            require_values(keys, PANE)
        panes = np.concatenate([np.zeros(0, np.int64), *(numpy_of(keys, PANE) for keys in rows.keys)])
        self._index.restore(rows.keys, mixed(rows.hashes, panes))
        self._columns.restore(rows.parts)
        self._columns.reserve(len(panes))
        self._hashes.append(rows.hashes)
        self._changes.restored(len(panes))
        self._file(np.arange(len(panes)), panes)

    def _fold(self, batch: pa.RecordBatch) -> tuple[pa.Table, Array]:
        is_late: Array = self._shape.is_expired(numpy_of(batch, PANE), self.clock.kept.of(numpy_of(batch, HASH)))
        if is_late.any():
            batch = batch.filter(pa.array(~is_late))
        return self._folded(batch) if batch.num_rows else self.schema.empty_table(), is_late

    def _folded(self, batch: pa.RecordBatch) -> pa.Table:
        """The same of records in time."""
        known = len(self._index)
        hashes, panes = numpy_of(batch, HASH), numpy_of(batch, PANE)
        keys = batch.select(self._index.schema.names)
        rows = self._index.rows_of(keys, mixed(hashes, panes))
        count = len(self._index)
        self._hashes.extend_to(count)
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
        for pane, (mine,) in by_value(panes, rows):
            if pane not in self._rows:
                self._rows[pane] = []
                bisect.insort(self._panes, pane)
            self._rows[pane].append(mine)

    def _rows_in(self, pane: int) -> Array:
        """The rows of a pane that has any, in one piece from now on."""
        pieces = self._rows[pane]
        if len(pieces) > 1:
            pieces[:] = [np.concatenate(pieces)]
        return pieces[0]

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
            total = self._columns.added_up(self._in_panes(found, who[places[mine]], ends[mine]), len(mine))
            changed.append(self._table(rows[places[mine]], ends[mine], total, np.arange(len(mine))))
        return pa.concat_tables(changed)

    def _in_panes(self, found: PaneRows, who: Array, ends: Array) -> Iterator[tuple[Array, Array]]:
        """As PaneRows.among, for the first pane with rows of each window, then for the second, and so on."""
        for windows, panes in in_turn(found.panes, self._shape.start(ends), ends):
            there, rows = found.among(who[windows], found.panes[panes])
            yield windows[there], rows

    def _kept_ends(self, panes: Array, hashes: Array) -> tuple[Array, Array]:
        """For each pane the ends of the first and last window that has fired and may change. hashes: of the keys."""
        return self._shape.kept_ends(panes, self.clock.reached.of(hashes), self.clock.kept.of(hashes))

    def _found(self, keys: pa.RecordBatch, rows: Array, panes: Array, who: Array) -> PaneRows:
        """The rows of some keys in all panes of the windows that `_fired_again` tells. who: a number for each key."""
        hashes = self._hashes[rows]
        pieces = []
        for pane, touched in self.beside(panes, hashes, self._panes):
            groups, once = np.unique(who[touched], return_index=True)
            mine = touched[once]
            columns = [*keys.take(pa.array(mine)).columns, pa.array(np.full(len(mine), pane))]
            there = pa.RecordBatch.from_arrays(columns, schema=self._index.schema)
            known = self._index.known_rows_of(there, mixed(hashes[mine], there.column(len(self._keys)).to_numpy()))
            is_known = known >= 0
            pieces.append((groups[is_known], np.full(is_known.sum(), pane), known[is_known]))
        return PaneRows(*(np.concatenate(item) for item in zip(*pieces, strict=True)))

    def _portions(self, ends: Sequence[int], held: Held) -> Iterator[Sequence[int]]:
        """Ends of windows, in portions with a bounded number of rows."""
        panes, until = np.array([*held]), np.cumsum([0, *map(len, held.values())])
        first, behind = (np.searchsorted(panes, times) for times in (self._shape.start(np.array(ends)), ends))
        count, start = 0, 0
        for number, more in enumerate((until[behind] - until[first]).tolist(), start=1):
            count += more
            if count >= _ROWS_AT_ONCE or number == len(ends):
                yield ends[start:number]
                count, start = 0, number

    def _fire(self, ends: Sequence[int], before: Reached, held: Held) -> pa.Table:
        """The results of complete windows. before: earlier event time, whose windows have fired."""
        pieces = []
        mine, over = [*held.values()], np.array(ends)
        for windows, panes in in_turn(np.array([*held]), self._shape.start(over), over):
            some = [mine[pane] for pane in panes.tolist()]
            rows, window_ends = np.concatenate(some), np.repeat(over[windows], [*map(len, some)])
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
        rows = np.concatenate([item for item, _ in pieces])
        ends = np.concatenate([item for _, item in pieces])
        groups, first = self._grouped(rows, ends)
        bounds = np.cumsum([len(item) for item, _ in pieces])[:-1]
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

    def _bounds_of_late(self, batch: pa.RecordBatch, alone: AggregateColumns) -> tuple[Array, Array]:  # noqa: ARG002
        """Of the last window that each pane is in."""
        ends = self._shape.last_end(numpy_of(batch, PANE))
        return ends - self._shape.size_ms, ends

    def _table(self, rows: Array, ends: Array, columns: AggregateColumns, at: Array) -> pa.Table:
        """Results. rows: of the keys; columns, at: where the aggregates are."""
        keys = self._index.keys_at(rows).select(self._keys.names)
        return self._as_table(keys, window_columns(self._shape.opening(ends), ends), columns, at)

    def _purged_until(self) -> int:
        return self._shape.expired_until(self.clock.now)

    def _purge(self) -> None:
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
        hashes, self._hashes = self._hashes[live], GrowingArray(np.int64, 0)
        self._hashes.append(hashes)
        self._rows = {pane: [places[self._rows_in(pane)]] for pane in self._panes}
        self._changes.moved(live, is_complete=True)  # of purged rows the watermark tells
        self._purged = 0
