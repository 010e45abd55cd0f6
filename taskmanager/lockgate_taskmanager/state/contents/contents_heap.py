"""The records of windows in memory, listed by pane.

Dropped records leave gaps; when those outnumber the others, the store is compacted, which costs no more than the drops
did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.arrays import by_value, numpy_of
from lockgate_taskmanager.state.columns.pieces import fitting
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.held_records import GroupRecords
from lockgate_taskmanager.state.format.state_file import Stored
from lockgate_taskmanager.state.heap.snapshots import FrozenHeap
from lockgate_taskmanager.state.heap.timed_heap import TimedHeap
from lockgate_taskmanager.state.join.waiting import columns_of
from lockgate_taskmanager.state.layout import EVENT_TIME, HASH
from lockgate_taskmanager.state.windows.panes import Panes
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray
_FEW_ROWS = 4096  # no compaction for fewer dropped rows


class ContentsHeap(TimedHeap):
    """The HeldRecords in memory."""

    _spec: ContentsSpec

    def __init__(self, spec: ContentsSpec, schema: pa.Schema, choice: StateBackend) -> None:
        """schema: of the records; choice: how snapshots are to be."""
        super().__init__(spec, columns_of(schema), choice)

    def _begin(self) -> None:
        super()._begin()
        self._rows: dict[int, list[Array]] = {}  # by pane
        self.panes = Panes(self._spec.key_groups)

    def restore(self, snapshots: Sequence[Stored]) -> None:
        for snapshot in snapshots:
            for batch in snapshot.batches:
                self.add(batch.select(self._schema.names), numpy_of(batch, HASH), numpy_of(batch, EVENT_TIME))
        self._changes.restored(len(self._pieces))
        self.restored_from = [snapshot.about for snapshot in snapshots]

    def between(self, start_ms: int, end_ms: int) -> Iterator[GroupRecords]:
        found = [rows for pane in self.panes.until(end_ms - 1, start_ms - 1) for rows in self._rows[pane]]
        rows = np.concatenate([np.zeros(0, np.int64), *found])
        for group, (mine,) in by_value(np.mod(self._hashes[rows], self._spec.max_parallelism), rows):
            yield GroupRecords(group, list(fitting(self._pieces.take, mine)), self._hashes[mine], self._times[mine])

    def forget(self, until: int) -> None:
        over = self.panes.until(until)
        self._forgotten += sum(len(rows) for pane in over for rows in self._rows.pop(pane))
        self.panes.drop(over)
        if self._forgotten > max(len(self._pieces) - self._forgotten, _FEW_ROWS):
            self._move_together()

    def snapshot(self, order: SnapshotOrder, about: About) -> FrozenHeap:
        return self._frozen_at(order, about)

    def _file(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        first = len(self._pieces)
        self._pieces.append(rows)
        self._hashes.append(hashes)
        self._times.append(times)
        panes = times - (times - self._spec.offset_ms) % self._spec.span_ms
        for pane, (mine,) in by_value(panes, np.arange(first, first + len(times))):
            self._rows.setdefault(pane, []).append(mine)
        self.panes.add(panes, np.mod(hashes, self._spec.max_parallelism))

    def _move_together(self) -> None:
        pieces, hashes, times = self._pieces, self._hashes, self._times
        live = np.sort(np.concatenate([np.zeros(0, np.int64), *(row for rows in self._rows.values() for row in rows)]))
        self._begin()
        at = 0
        for batch in fitting(pieces.take, live):
            rows = live[at : at + batch.num_rows]
            self._file(batch, hashes[rows], times[rows])
            at += batch.num_rows
        self._changes.moved(live, is_complete=True)  # of forgotten records their time tells
