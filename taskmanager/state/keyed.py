"""Keyed aggregate state of one subtask: folds partial aggregates, freezes in microseconds.

    partial table --merge--> changed keys with their new values
                  --freeze-> FrozenState --to_buffer (background)--> Arrow IPC file, one record batch a key group

Freezing copies nothing: the numpy columns are handed to the snapshot, and the first merge after it copies a column
before it writes into it, unless the snapshot has been written by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import KeyedAggregate

from taskmanager.state import stored
from taskmanager.state.aggregates import AggregateColumns, field_of
from taskmanager.state.arrays import numpy_of, one_batch
from taskmanager.state.changes import Changed, Changes
from taskmanager.state.columns import Freeze, FrozenColumn
from taskmanager.state.increments import Increment
from taskmanager.state.keys import KeyIndex
from taskmanager.state.layout import HASH, ROWS
from taskmanager.state.pieces import FrozenPieces
from taskmanager.state.store import Merged

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class FrozenState:
    """A consistent copy of the state; what it makes may be made on any thread while merging goes on."""

    keys: FrozenPieces
    hashes: Array
    columns: tuple[tuple[str, FrozenColumn], ...]
    about: stored.About
    reader: Freeze
    changed: Changed

    @property
    def version(self) -> int:
        """See heap.Frozen."""
        return self.changed.version

    def to_buffer(self) -> pa.Buffer:
        """The snapshot file's bytes."""
        return stored.write(self.hashes, self._taken, self.about)

    def increment(self, since: int) -> Increment | None:
        """What has changed since that version; None when that is most of it, or it is not known."""
        rows = self.changed.since(since)
        if rows is None or 2 * len(rows) > len(self.hashes):
            return None

        def take(places: Array) -> pa.RecordBatch:
            return stored.replacing(self._taken(rows[places]))

        return Increment(stored.write(self.hashes[rows], take, self.about, is_increment=True))

    def release(self) -> None:
        """The bytes are made (or will not be): the state need not copy for this snapshot any more."""
        self.reader.done = True

    def _taken(self, rows: Array) -> pa.RecordBatch:
        """Key columns, `__hash` and parts of some rows."""
        keys = self.keys.take(rows)
        columns = [*keys.columns, pa.array(self.hashes[rows]), *(one.to_arrow(rows) for _, one in self.columns)]
        return pa.RecordBatch.from_arrays(columns, [*keys.schema.names, HASH, *(name for name, _ in self.columns)])


class KeyedState:
    """Keys of the subtask's key groups with their aggregates. Used from the subtask's own thread."""

    def __init__(
        self,
        operator: KeyedAggregate,
        schema: pa.Schema,
        max_parallelism: int,
        *,
        is_tracked: bool = False,
        owned: range = range(0),
    ) -> None:
        """schema: of the partial table, see `layout`. is_tracked: it is remembered which keys change, for increments.

        owned: key groups of the subtask; its snapshots say so.

        Raises UserError when a column or type does not fit.
        """
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._owned = owned
        self.partial_schema = schema
        key_fields = [field_of(schema, name) for name in operator.keys]
        self._index = KeyIndex(pa.schema(key_fields))
        self._columns = AggregateColumns(operator, schema)
        self._changes = Changes(is_tracked)
        self.schema = pa.schema([*key_fields, *self._columns.fields])

    def __len__(self) -> int:
        return len(self._index)

    def merge(self, partial: pa.Table) -> Merged:
        """Folds a partial table. Costs by its rows, not by the keys held. Raises DataError on overflow."""
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        batch = one_batch(partial)
        keys = batch.select(list(self._operator.keys))
        rows = self._index.rows_of(keys, numpy_of(batch, HASH))
        self._columns.reserve(len(self._index))
        self._changes.mark(rows, len(self._index))
        last = self._columns.fold(rows, batch)
        records = int(pc.sum(batch.column(ROWS)).as_py())
        if last is not None:
            keys, rows = keys.take(pa.array(last)), rows[last]
        changed = pa.Table.from_arrays([*keys.columns, *self._columns.results(rows)], schema=self.schema)
        return Merged(records, changed)

    def freeze(self) -> FrozenState:
        """The state as it is now. Microseconds, whatever its size."""
        reader = Freeze()
        count = len(self._index)
        return FrozenState(
            self._index.frozen(),
            self._index.hashes,
            self._columns.freeze(count, reader),
            stored.About(self.partial_schema, stored.signature(self._operator), self._max_parallelism, self._owned),
            reader,
            self._changes.freeze(count),
        )

    def restore(self, snapshots: Sequence[stored.Stored]) -> None:
        """Replaces the state by what was stored. Call once, before the first merge."""
        rows = stored.joined(snapshots, len(self._operator.keys))
        self._index.restore(rows.keys, rows.hashes)
        self._columns.restore(rows.parts)
        self._changes.restored(len(self._index))
