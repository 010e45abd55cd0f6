"""A consistent copy of windowed state. What it makes may be made on any thread while merging goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from taskmanager.state import stored
from taskmanager.state.columns import Freeze, FrozenColumn
from taskmanager.state.layout import HASH

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class FrozenWindows:
    """See the module. keys, hashes: by key; columns: by row; live: the rows to store.

    places: the key of each row, None where row i has key i.
    """

    keys: tuple[pa.RecordBatch, ...]
    key_schema: pa.Schema
    hashes: Array
    columns: tuple[tuple[str, FrozenColumn], ...]
    about: stored.About
    reader: Freeze
    live: Callable[[], Array]
    places: Array | None = None

    def to_buffer(self) -> pa.Buffer:
        """The snapshot file's bytes."""
        rows = self.live()
        places = rows if self.places is None else self.places[rows]
        positions = pa.array(places, pa.int64())
        arrays = [
            pa.chunked_array([chunk.column(number) for chunk in self.keys], field.type).take(positions)
            for number, field in enumerate(self.key_schema)
        ]
        arrays += [pa.array(self.hashes[places]), *(column.to_arrow(rows) for _, column in self.columns)]
        names = [*self.key_schema.names, HASH, *(name for name, _ in self.columns)]
        return stored.write(pa.table(arrays, names=names), self.about)

    def release(self) -> None:
        """The bytes are made (or will not be): the state need not copy for this snapshot any more."""
        self.reader.done = True
