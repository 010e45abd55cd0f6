"""Where the rows of one key are in one subtask's part of a snapshot: in files, or in a database.

Both give the rows as they are in a snapshot file: the key columns, with windows the pane, `__hash`, the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.aggregates.aggregate_database import AggregateTable
from lockgate_taskmanager.state.columns.keys import same_keys
from lockgate_taskmanager.state.format.state_file import Stored
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.query.identity import QuerySpec
from lockgate_taskmanager.state.rocksdb import element_entries
from lockgate_taskmanager.state.rocksdb.engine import Database
from lockgate_taskmanager.state.rocksdb.frozen_database import group_key
from lockgate_taskmanager.state.rocksdb.key_table import KeyTable
from lockgate_taskmanager.state.rows.row_database import RowTable
from lockgate_taskmanager.state.rows.row_store import PROCESS, RowSpec
from lockgate_taskmanager.state.windows.pane_table import PaneTable, in_panes, pane_key, pane_of
from lockgate_taskmanager.state.windows.session_table import SessionTable

Array = Any  # numpy.ndarray
_SAMPLED = 4096  # rows of a database in which a key without NULLs is looked for
_DATABASE_BYTES = 32 << 20  # memory of one that is only read


class Held(Protocol):
    """One subtask's part of an operator's state. about: its header."""

    about: About

    def rows_of(self, key: pa.RecordBatch, key_hash: int) -> pa.RecordBatch | None:
        """The rows of a key, None when there is none. Raises StateUnreadable, OSError."""
        ...

    def sample(self) -> pa.RecordBatch | None:
        """One row, without NULLs in its key if one of the first has none."""
        ...


class Piece:
    """One file of a chain. A key is found by a binary search in its key group; each is sorted when first asked for."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self._by_group: dict[int, list[pa.RecordBatch]] = {}
        self._sorted: dict[int, list[tuple[pa.RecordBatch, Array, Array]]] = {}
        for batch in stored.batches:
            if batch.num_rows:
                group = batch.column(HASH)[0].as_py() % stored.about.max_parallelism
                self._by_group.setdefault(group, []).append(batch)

    def of(self, key_hash: int) -> Stored:
        """The same piece with only the rows that have this hash."""
        found = []
        for batch, order, hashes in self._group(key_hash % self.stored.about.max_parallelism):
            first, behind = (int(np.searchsorted(hashes, key_hash, side)) for side in ("left", "right"))
            if first < behind:
                found.append(batch.take(pa.array(np.sort(order[first:behind]))))
        return replace(self.stored, batches=tuple(found))

    def _group(self, group: int) -> list[tuple[pa.RecordBatch, Array, Array]]:
        found = self._sorted.get(group)
        if found is None:
            found = []
            for batch in self._by_group.get(group, ()):
                hashes = batch.column(HASH).to_numpy(zero_copy_only=False)
                order = np.argsort(hashes, kind="stable")
                found.append((batch, order, hashes[order]))
            self._sorted[group] = found
        return found


class HeldInFiles:
    """A full file and its increments, of which only the rows of the key are merged."""

    def __init__(self, spec: QuerySpec, pieces: Sequence[Piece]) -> None:
        self._spec, self._pieces = spec, pieces
        self.about = pieces[-1].stored.about

    def rows_of(self, key: pa.RecordBatch, key_hash: int) -> pa.RecordBatch | None:
        batches = self._spec.latest([piece.of(key_hash) for piece in self._pieces]).batches
        rows = pa.concat_batches([batch for batch in batches if batch.num_rows]) if any(map(len, batches)) else None
        return None if rows is None else only(rows, key)

    def sample(self) -> pa.RecordBatch | None:
        return _sample(batch for piece in self._pieces for batch in piece.stored.batches)


class HeldInDatabase:
    """A RocksDB database, opened for reading only. database: closed by its opener, which releases its files."""

    def __init__(self, spec: QuerySpec, about: About, folder: Path) -> None:
        self.about = about
        self._spec = spec
        self._table = _table(spec, about.partial_schema)
        self._panes: dict[int, Array] = {}
        self.database = Database(folder, _DATABASE_BYTES, is_read_only=True)

    def rows_of(self, key: pa.RecordBatch, key_hash: int) -> pa.RecordBatch | None:
        names = self._table.names(key.columns, np.array([key_hash], np.int64))
        if isinstance(self._table, PaneTable):
            panes = self._panes_of(key_hash % self._spec.max_parallelism)
            names = in_panes(names * len(panes), panes) if len(panes) else []
        found = self.database.get(names)
        rows = [(name, value) for name, value in zip(names, found, strict=True) if value is not None]
        if isinstance(self._spec, RowSpec) and self._spec.owner == PROCESS:
            rows = list(element_entries.joined(self.database, rows))
        return self._table.stored_batch(rows) if rows else None

    def sample(self) -> pa.RecordBatch | None:
        last = group_key(self._spec.max_parallelism) if self._spec.max_parallelism < 1 << 15 else b"\x7f\xff\xff"
        first = islice(self.database.rows(group_key(0), last), _SAMPLED)
        return _sample(self._table.stored_batch([row]) for row in first)

    def _panes_of(self, group: int) -> Array:
        """All panes in a key group: one look-up for each when first asked for."""
        found = self._panes.get(group)
        if found is None:
            panes, at, end = [], group_key(group), group_key(group + 1)
            while (row := next(self.database.rows(at, end), None)) is not None:
                panes.append(pane_of(row[0]))
                at = pane_key(group, panes[-1] + 1)
            self._panes[group] = found = np.array(panes, np.int64)
        return found


def only(rows: pa.RecordBatch, key: pa.RecordBatch) -> pa.RecordBatch | None:
    """Those rows that have the key itself, and not merely its hash."""
    mine = rows.select(key.schema.names)
    mask = same_keys(mine, key.take(pa.array(np.zeros(rows.num_rows, np.int64))))
    return rows.filter(pa.array(mask)) if mask.any() else None


def _sample(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch | None:
    """A row without NULLs in the columns before HASH, otherwise the first."""
    first = None
    for batch in batches:
        whole = np.ones(batch.num_rows, np.bool_)
        for column in batch.columns[: batch.schema.get_field_index(HASH)]:
            whole &= column.is_valid().to_numpy(zero_copy_only=False)
        if whole.any():
            return batch.slice(int(whole.argmax()), 1)
        if first is None and batch.num_rows:
            first = batch.slice(0, 1)
    return first


def _table(spec: QuerySpec, schema: pa.Schema) -> KeyTable:
    if isinstance(spec, RowSpec):
        return RowTable(spec.within(schema), schema)
    if spec.aggregation.window is None:
        return AggregateTable(spec.aggregation, schema, spec.max_parallelism)
    if spec.is_session:
        return SessionTable(spec.stored, schema, spec.max_parallelism)
    return PaneTable(spec.stored, schema, spec.max_parallelism)
