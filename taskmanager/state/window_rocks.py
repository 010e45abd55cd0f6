"""Tumbling and sliding windows in a RocksDB database: as many as the disk holds. See `pane_table`.

What windows are is known to WindowedState alone. It is given the rows that a batch or a firing needs, and no others,
for as long as that takes; what it makes of them goes back into the database. In memory there is between batches only
which panes there are. A firing takes the keys some ten thousand rows at a time, and a purge removes ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskmanager.state import filling
from taskmanager.state.arrays import numpy_of, one_batch
from taskmanager.state.event_clock import Reached, Restored
from taskmanager.state.firing import Firing, Portion
from taskmanager.state.frozen_rocks import group_key
from taskmanager.state.held_windows import HeldWindows
from taskmanager.state.layout import HASH, PANE
from taskmanager.state.pane_scan import Row, side_by_side
from taskmanager.state.pane_table import PaneTable, in_panes, pane_key, pane_of
from taskmanager.state.panes import Panes
from taskmanager.state.rocks import database_names
from taskmanager.state.rocksdb import ROWS_AT_ONCE
from taskmanager.state.store import Merged, StoreSpec
from taskmanager.state.windowed import WindowedState
from taskmanager.state.windows import shape_of
from taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
_PANES_AT_ONCE = 64  # beyond those of one window


class WindowRocks(HeldWindows[WindowedState]):
    """See KeyedStore, and WindowStore."""

    def __init__(self, spec: StoreSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        """See HeldWindows."""
        assert spec.aggregation.window is not None
        self._table = PaneTable(spec.aggregation, schema, spec.max_parallelism)
        super().__init__(spec, schema, WindowedState, self._table, folder, memory_bytes)
        self._shape = shape_of(spec.aggregation.window)
        self._panes = Panes(spec.key_groups)
        self._firing = Firing()

    def merge(self, partial: pa.Table) -> Merged:
        """See KeyedStore. Reads the rows of its keys and panes, and what windows that have fired are of besides."""
        if not partial.num_rows:
            return self._empty.merge(partial)
        batch = one_batch(partial)
        names = sorted(self._needed(batch.filter(pc.is_valid(batch.column(PANE)))))
        found = {name: value for name, value in zip(names, self.database.get(names), strict=True) if value is not None}
        working = self._holding(list(found.items()), self.clock)
        merged = working.merge(pa.Table.from_batches([batch]))
        for rows in working.freeze().batches():
            changed = zip(*self._table.database_rows(rows), strict=True)
            self.database.write({name: value for name, value in changed if found.get(name) != value})
            self._note(rows)
        return merged

    def advance(self, watermark_ms: int) -> pa.Table:
        """See Fires."""
        return self._firing.begin(self._due(max(watermark_ms, self.clock.now)), self.schema)

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

    def _due(self, now: int) -> Iterator[Portion]:
        before = self.clock.reached
        waiting = self._panes.until(now, self._shape.fired_until(before.least))
        ends = list(self._portions(self._shape.due(waiting, before.least, now)))
        panes = [self._panes.within(pane for end in some for pane in self._shape.panes(end)) for some in ends]
        there = self._panes.groups({pane for some in panes for pane in some})
        held: list[list[Row]] = [[] for _ in ends]
        for group in there:
            has_fired = False
            for mine, rows in zip(panes, held, strict=True):
                for portion in self._rows_of(mine, group):
                    rows += portion
                    if sum(map(len, held)) >= ROWS_AT_ONCE:
                        yield Portion(self._fired(ends, held, before), is_settled=False)
                        has_fired = True
            if has_fired and group != there[-1] and now != MAX_WATERMARK:
                rest = self._fired(ends, held, before)
                self.clock.come_to(now, range(self._spec.key_groups.start, group + 1))
                yield Portion(rest, is_settled=True)
        rest = self._fired(ends, held, before)
        self.clock.advance(now)
        self._purge()
        yield Portion(rest, is_settled=True, is_last=True)

    def _fired(self, ends: Sequence[Sequence[int]], held: Sequence[list[Row]], before: Reached) -> pa.Table:
        """Results of some windows of the rows that are held for these, which are let go of."""
        found = [self.schema.empty_table()]
        for some, rows in zip(ends, held, strict=True):
            if rows:
                found.append(self._holding(rows, self.clock).fire(some, before))
                rows.clear()
        return pa.concat_tables(found)

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        """See restored_rocks.Filled."""
        for rows in filling.cut(batches, ROWS_AT_ONCE):
            self.database.itself.put(*self._table.database_rows(rows))

    def filled(self, told: Sequence[Restored]) -> None:
        """See restored_rocks.Filled. Costs a look at each pane in each key group."""
        self.clock.restore(told)
        for group in self._spec.key_groups:
            at = group_key(group)
            while found := self.database.names(at, group_key(group + 1), 1):
                pane = pane_of(found[0])
                self._panes.add(np.array([pane]), np.array([group]))
                at = pane_key(group, pane + 1)

    def _needed(self, batch: pa.RecordBatch) -> set[bytes]:
        """Names of the rows that a merge of this batch reads, as far as their panes have any."""
        panes, hashes = numpy_of(batch, PANE), numpy_of(batch, HASH)
        keys = [batch.column(name) for name in self._spec.aggregation.keys]
        names = database_names(keys, hashes, self._spec.max_parallelism)
        there = self._panes.among(panes)
        needed = set(in_panes(list(compress(names, there)), panes[there]))
        for pane, touched in self._empty.beside(panes, hashes, self._panes.all()):
            needed.update(in_panes([names[place] for place in touched.tolist()], np.full(len(touched), pane)))
        return needed

    def _note(self, rows: pa.RecordBatch) -> None:
        self._panes.add(numpy_of(rows, PANE), np.mod(numpy_of(rows, HASH), self._spec.max_parallelism))

    def _portions(self, ends: Sequence[int]) -> Iterator[list[int]]:
        """Ends of windows, as many together as have some number of panes."""
        portion: list[int] = []
        panes: set[int] = set()
        at_once = self._shape.size_ms // self._shape.pane_ms + _PANES_AT_ONCE
        for end in ends:
            mine = self._panes.within(self._shape.panes(end))
            if portion and len(panes.union(mine)) > at_once:
                yield portion
                portion, panes = [], set()
            portion.append(end)
            panes.update(mine)
        if portion:
            yield portion

    def _rows_of(self, panes: Sequence[int], group: int) -> Iterator[list[Row]]:
        """The rows of some panes in a key group, some number at a time, those of a key together."""
        ranges = [(pane_key(group, one), pane_key(group, one + 1)) for one in self._panes.in_group(panes, group)]
        return side_by_side(self.database.rows, ranges, ROWS_AT_ONCE)

    def _purge(self) -> None:
        """Forgets the panes that no window needs."""
        gone = self._panes.until(self._shape.expired_until(self.clock.now))
        if gone:
            self.database.forget(
                (pane_key(group, gone[0]), pane_key(group, gone[-1] + 1)) for group in self._panes.groups(gone)
            )
            self._panes.drop(gone)
