"""A consistent copy of rows in memory. It can be written on any thread while the rows change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.changes import Changed
from lockgate_taskmanager.state.columns.folded import Freeze, FrozenColumn
from lockgate_taskmanager.state.columns.pieces import FrozenPieces, fitting
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.format.increments import Increment
from lockgate_taskmanager.state.layout import HASH

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenRows:
    """Rows as of a snapshot. keys, hashes: by key; columns: by row; changed: keys.

    live: the rows to store, in order, None for all; places: the key of each row, None if row i has key i; reader:
    whether the columns are still read. An increment holds every row of a changed key; rows purged by event time appear
    only in `about.purged_until`.
    """

    keys: FrozenPieces
    hashes: Array
    columns: tuple[tuple[str, FrozenColumn], ...] = ()
    about: About
    changed: Changed
    reader: Freeze = field(default_factory=Freeze)
    live: Callable[[], Array] | None = None
    places: Array | None = None

    @property
    def version(self) -> int:
        return self.changed.version

    def to_buffer(self) -> pa.Buffer:
        rows = self._live()
        return state_file.write(self._hashes_of(rows), lambda places: self._taken(rows[places]), self.about)

    def increment(self, since: int) -> Increment | None:
        keys = self.changed.since(since)
        if keys is None:
            return None
        is_changed = np.zeros(len(self.hashes), np.bool_)
        is_changed[keys] = True
        live = self._live()
        rows = live[is_changed[live if self.places is None else self.places[live]]]
        if 2 * len(rows) > len(live):
            return None

        def take(places: Array) -> pa.RecordBatch:
            return state_file.replacing(self._taken(rows[places]))

        return Increment(state_file.write(self._hashes_of(rows), take, self.about, is_increment=True))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows to store, in the stored form."""
        rows = self._live()
        if len(rows):
            yield from fitting(self._taken, rows)

    def release(self) -> None:
        """The bytes are written, or will not be: the state need not copy for this snapshot any more."""
        self.reader.done = True

    def _live(self) -> Array:
        return np.arange(len(self.hashes)) if self.live is None else self.live()

    def _hashes_of(self, rows: Array) -> Array:
        return self.hashes[rows if self.places is None else self.places[rows]]

    def _taken(self, rows: Array) -> pa.RecordBatch:
        """Key columns, `__hash` and parts of some rows."""
        return self._stored(rows, [(name, column.to_arrow(rows)) for name, column in self.columns])

    def _stored(self, rows: Array, parts: list[tuple[str, pa.Array]]) -> pa.RecordBatch:
        """The same with these parts."""
        keys = self.keys.take(rows if self.places is None else self.places[rows])
        names = [*keys.schema.names, HASH, *(name for name, _ in parts)]
        columns = [*keys.columns, pa.array(self._hashes_of(rows)), *(part for _, part in parts)]
        return pa.RecordBatch.from_arrays(columns, names)
