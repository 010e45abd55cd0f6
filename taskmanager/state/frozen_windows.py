"""A consistent copy of windowed state. What it makes may be made on any thread while merging goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from taskmanager.state import stored
from taskmanager.state.changes import Changed
from taskmanager.state.columns import Freeze, FrozenColumn
from taskmanager.state.increments import Increment
from taskmanager.state.layout import HASH
from taskmanager.state.pieces import FrozenPieces, fitting

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class FrozenWindows:
    """See the module and heap.Frozen. keys, hashes: by key; columns: by row; live: the rows to store, in order.

    changed: keys; places: the key of each row, None where row i has key i. An increment holds every row of a key that
    has changed; rows that event time has purged are told by `about.purged_until` alone.
    """

    keys: FrozenPieces
    hashes: Array
    columns: tuple[tuple[str, FrozenColumn], ...]
    about: stored.About
    reader: Freeze
    live: Callable[[], Array]
    changed: Changed
    places: Array | None = None

    @property
    def version(self) -> int:
        """See heap.Frozen."""
        return self.changed.version

    def to_buffer(self) -> pa.Buffer:
        """See heap.Frozen."""
        rows = self.live()
        return stored.write(self._hashes_of(rows), lambda places: self._taken(rows[places]), self.about)

    def increment(self, since: int) -> Increment | None:
        """See heap.Frozen."""
        keys = self.changed.since(since)
        if keys is None:
            return None
        is_changed = np.zeros(len(self.hashes), np.bool_)
        is_changed[keys] = True
        live = self.live()
        rows = live[is_changed[live if self.places is None else self.places[live]]]
        if 2 * len(rows) > len(live):
            return None

        def take(places: Array) -> pa.RecordBatch:
            return stored.replacing(self._taken(rows[places]))

        return Increment(stored.write(self._hashes_of(rows), take, self.about, is_increment=True))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows to store, as they are stored."""
        rows = self.live()
        if len(rows):
            yield from fitting(self._taken, rows)

    def release(self) -> None:
        """The bytes are made (or will not be): the state need not copy for this snapshot any more."""
        self.reader.done = True

    def _hashes_of(self, rows: Array) -> Array:
        return self.hashes[rows if self.places is None else self.places[rows]]

    def _taken(self, rows: Array) -> pa.RecordBatch:
        """Key columns, `__hash` and parts of some rows."""
        keys = self.keys.take(rows if self.places is None else self.places[rows])
        parts = [column.to_arrow(rows) for _, column in self.columns]
        names = [*keys.schema.names, HASH, *(name for name, _ in self.columns)]
        return pa.RecordBatch.from_arrays([*keys.columns, pa.array(self._hashes_of(rows)), *parts], names)
