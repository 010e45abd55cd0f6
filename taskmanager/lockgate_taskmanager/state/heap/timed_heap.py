"""TimedHeap: rows with a time in memory, which are only appended, and dropped when their time is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.changes import Changes
from lockgate_taskmanager.state.columns.folded import FrozenColumn
from lockgate_taskmanager.state.columns.growing import GrowingArray
from lockgate_taskmanager.state.columns.physical import physical
from lockgate_taskmanager.state.columns.pieces import Pieces
from lockgate_taskmanager.state.format.state_file import BASE, DELETED
from lockgate_taskmanager.state.heap.frozen_rows import FrozenRows
from lockgate_taskmanager.state.heap.heap_store import HeapStore
from lockgate_taskmanager.state.heap.snapshots import FrozenHeap
from lockgate_taskmanager.state.layout import EVENT_TIME
from lockgate_taskmanager.state.spec import StateSpec
from lockgate_taskmanager.task.program import SnapshotOrder, UserError

Array = Any  # numpy.ndarray


class TimedHeap(HeapStore):
    """How the rows are found again is the subclass's: it adds its index in `_begin` and `_file`."""

    def __init__(self, spec: StateSpec, schema: pa.Schema, choice: StateBackend) -> None:
        """schema: of the rows; choice: how snapshots are to be. Raises UserError for a column that increments have."""
        super().__init__(spec, choice)
        self.restored_from: Sequence[About] = ()
        self._schema = schema
        self._changes = Changes(self.chains.is_incremental)
        if self.chains.is_incremental and (own := [name for name in (DELETED, BASE) if name in schema.names]):
            raise UserError(
                f"the column name '{own[0]}' is reserved where records are stored by increments; rename it with AS"
            )
        self._begin()

    def _begin(self) -> None:
        """Empties it."""
        self._pieces = Pieces(self._schema)
        self._hashes = GrowingArray(np.int64, 0)
        self._times = GrowingArray(np.int64, 0)
        self._forgotten = 0

    def _file(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> object:
        """Adds rows at the end."""
        raise NotImplementedError

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        """Adds rows, if there are any."""
        if rows.num_rows:
            first = len(self._pieces)
            self._file(rows, hashes, times)
            self._changes.mark(np.arange(first, len(self._pieces)), len(self._pieces))

    def purge(self, until: int) -> None:
        """Does nothing: snapshot files contain no rows that are over."""

    def _frozen_at(self, order: SnapshotOrder, about: About) -> FrozenHeap:
        """The rows as they are now. Takes microseconds, because rows are only appended and never changed."""
        times = self._times.values
        frozen = FrozenRows(
            keys=self._pieces.frozen(),
            hashes=self._hashes.values,
            columns=((EVENT_TIME, FrozenColumn(physical(pa.int64()), times, None)),),
            about=about,
            changed=self._changes.freeze(len(self._pieces)),
            live=lambda: np.flatnonzero(times > about.purged_until),
        )
        return self._frozen(order, frozen)
