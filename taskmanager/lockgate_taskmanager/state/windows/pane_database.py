"""Tumbling and sliding windows in a RocksDB database, limited only by the disk. For the layout see `pane_table`.

Only PaneState knows what a window is. For the duration of a batch or a firing it gets just the rows concerned, and its
result is written back. Between batches only the list of panes stays in memory. A firing reads some ten thousand rows at
a time, and a purge deletes ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.arrays import numpy_of
from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.event_clock import Reached
from lockgate_taskmanager.state.firing import Portion
from lockgate_taskmanager.state.layout import HASH, PANE
from lockgate_taskmanager.state.rocksdb.database_store import cut
from lockgate_taskmanager.state.rocksdb.engine import ROWS_AT_ONCE
from lockgate_taskmanager.state.rocksdb.frozen_database import group_key
from lockgate_taskmanager.state.rocksdb.key_table import database_names
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.pane_scan import Row, side_by_side
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.pane_table import PaneTable, in_panes, pane_key, pane_of
from lockgate_taskmanager.state.windows.panes import Panes
from lockgate_taskmanager.state.windows.shape import rows_shape_of
from lockgate_taskmanager.state.windows.window_database import HeldWindows
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
_PANES_AT_ONCE = 64  # beyond those of one window


class PaneDatabase(HeldWindows[PaneState]):
    """The windowed store of tumbling and sliding windows in RocksDB."""

    _state: type[PaneState] = PaneState

    def __init__(self, spec: StoreSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        assert spec.aggregation.window is not None
        self._table = PaneTable(spec.stored, schema, spec.max_parallelism)
        super().__init__(spec, schema, self._state, self._table, folder, memory_bytes)
        self._shape = rows_shape_of(spec.aggregation.window)
        self._panes = Panes(spec.key_groups)

    def next_due_ms(self) -> int:
        """No window ends before this; NEVER when there is none."""
        due = self._shape.next_due(self._panes.all(), self.clock.reached.least)
        return NEVER if due is None else due

    def _put(self, working: PaneState, found: Mapping[bytes, bytes]) -> None:
        self._write(working, found)

    def _write(self, working: PaneState, found: Mapping[bytes, bytes]) -> list[bytes]:
        """As `_put`; returns the names of the changed rows."""
        written: list[bytes] = []
        for rows in working.freeze().batches():
            named = zip(*self._table.database_rows(rows), strict=True)
            changed: dict[bytes, bytes | None] = {name: value for name, value in named if found.get(name) != value}
            self.database.write(changed)
            self._note(rows)
            written += changed
        return written

    def _fires(self, now_ms: int) -> Iterator[Portion]:
        before = self.clock.reached
        waiting = self._panes.until(now_ms, self._shape.fired_until(before.least))
        ends = list(self._portions(self._shape.due(waiting, before.least, now_ms)))
        panes = [self._between(some[0], some[-1]) for some in ends]
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
            if has_fired and group != there[-1] and now_ms != MAX_WATERMARK:
                rest = self._fired(ends, held, before)
                self.clock.come_to(now_ms, range(self._spec.key_groups.start, group + 1))
                yield Portion(rest, is_settled=True)
        rest = self._fired(ends, held, before)
        self.clock.advance(now_ms)
        self._purge()
        yield Portion(rest, is_settled=True, is_last=True)

    def _fired(self, ends: Sequence[Sequence[int]], held: Sequence[list[Row]], before: Reached) -> pa.Table:
        """Results of some windows from the rows loaded for them, which are released."""
        found = [self.schema.empty_table()]
        for some, rows in zip(ends, held, strict=True):
            if rows:
                found.append(self._holding(rows, self.clock).fire(some, before))
                rows.clear()
        return pa.concat_tables(found)

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        for rows in cut(batches, ROWS_AT_ONCE):
            self._table.require(rows)
            self.database.itself.put(*self._table.database_rows(rows))

    def filled(self, restored_from: Sequence[About]) -> None:
        """Restores the clock and the list of panes. Costs one look-up for each pane in each key group."""
        self.clock.restore(restored_from)
        for group in self._spec.key_groups:
            at = group_key(group)
            while found := self.database.names(at, group_key(group + 1), 1):
                pane = pane_of(found[0])
                self._panes.add(np.array([pane]), np.array([group]))
                at = pane_key(group, pane + 1)

    def _needed(self, batch: pa.RecordBatch) -> set[bytes]:
        """Names of the rows of the records' keys and panes, and of the other panes of windows that have fired."""
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
        """Ends of windows, in portions with a bounded number of panes."""
        portion: list[int] = []
        at_once = self._shape.size_ms // self._shape.pane_ms + _PANES_AT_ONCE
        for end in ends:
            if portion and len(self._between(portion[0], end)) > at_once:
                yield portion
                portion = []
            portion.append(end)
        if portion:
            yield portion

    def _between(self, first: int, last: int) -> list[int]:
        """The panes that have rows of all windows from the one that ends at `first` to the one that ends at `last`."""
        return self._panes.until(last - 1, self._shape.start(first) - 1)

    def _rows_of(self, panes: Sequence[int], group: int) -> Iterator[list[Row]]:
        """The rows of some panes in a key group, in portions; the rows of a key are in one portion."""
        ranges = [
            (pane_key(group, number), pane_key(group, number + 1)) for number in self._panes.in_group(panes, group)
        ]
        return side_by_side(self.database.rows, ranges, ROWS_AT_ONCE)

    def _purge(self) -> None:
        """Drops the panes that no window needs."""
        gone = self._panes.until(self._shape.expired_until(self.clock.now))
        if gone:
            self.database.forget(
                (pane_key(group, gone[0]), pane_key(group, gone[-1] + 1)) for group in self._panes.groups(gone)
            )
            self._panes.drop(gone)
