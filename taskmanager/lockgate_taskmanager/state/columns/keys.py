"""Maps keys to rows of the state.

Keys are found by their 64-bit hash, which Spark has computed for the exchange anyway, and then compared. The keys are
pieces of Arrow data in insertion order, which snapshots contain as they are. Different keys with the same hash (one
pair in 10^7 states of a million keys) are kept in a dict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.columns.hashing import HashTable
from lockgate_taskmanager.state.columns.pieces import FrozenPieces, Pieces
from lockgate_taskmanager.task.program import UserError

Array = Any  # numpy.ndarray


class KeyIndex:
    """Key to row. NULL is a key like any other."""

    def __init__(self, schema: pa.Schema) -> None:
        """schema: the key columns. Raises UserError for key types that cannot be compared."""
        for field in schema:
            if pa.types.is_nested(field.type):
                raise UserError(f"column '{field.name}' of type {field.type} cannot be a key; use a plain value")
        self.schema = schema
        self._table = HashTable()
        self._pieces = Pieces(schema)
        self._collided: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return self._table.count

    @property
    def hashes(self) -> Array:
        """The hash of every key in insertion order; a returned array never changes."""
        return self._table.hashes

    def frozen(self) -> FrozenPieces:
        """All keys in insertion order, as they are now; copies nothing."""
        return self._pieces.frozen()

    def rows_of(self, keys: pa.RecordBatch, hashes: Array) -> Array:
        """The rows of `keys` (int64), new ones appended at the end. hashes: of each key (int64)."""
        rows = self._table.find(hashes)
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            _, first, inverse = np.unique(hashes[unknown], return_index=True, return_inverse=True)
            fresh = unknown[first]
            self._pieces.append(keys.take(pa.array(fresh)))
            rows[unknown] = self._table.append(hashes[fresh])[inverse]
        for position in np.flatnonzero(~self._are_keys_of(rows, keys)).tolist():
            rows[position] = self._row_of_collided(keys.slice(position, 1), hashes[position : position + 1])
        return rows

    def known_rows_of(self, keys: pa.RecordBatch, hashes: Array) -> Array:
        """The rows of `keys`, -1 for unknown keys."""
        rows = self._table.find(hashes)
        present = np.flatnonzero(rows >= 0)
        wrong = present[~self._are_keys_of(rows[present], keys.take(pa.array(present)))] if len(present) else present
        for position in wrong.tolist():
            rows[position] = self._collided.get(_tuple(keys.slice(position, 1)), -1)
        return rows

    def keys_at(self, rows: Array) -> pa.RecordBatch:
        """The keys of some rows. Cost grows with these. Raises pa.ArrowInvalid for more than 2 GiB of text."""
        return self._pieces.take(rows)

    def restore(self, keys: Sequence[pa.RecordBatch], hashes: Array) -> None:
        """Replaces everything by distinct keys of a snapshot. hashes: of all of them, one batch after the other."""
        self._table = HashTable()
        self._pieces = Pieces(self.schema)
        self._pieces.extend(keys)
        rows = self._table.append(hashes)
        self._collided = {}
        ordered = np.sort(hashes)  # takes half as long as looking all of them up
        if (ordered[1:] == ordered[:-1]).any():
            collided = self._table.find(hashes) != rows
            self._collided = {_tuple(self.keys_at(np.array([row]))): row for row in np.flatnonzero(collided).tolist()}
            self._table = HashTable()
            self._table.append(hashes, findable=~collided)

    def keep(self, rows: Array) -> None:
        """Keeps only these distinct keys, in that order: the key of rows[i] becomes row i."""
        self.restore(list(self._pieces.frozen().each(rows)), self.hashes[rows])

    def _are_keys_of(self, rows: Array, keys: pa.RecordBatch) -> Array:
        """Mask: the row has this very key."""
        return same_keys(self.keys_at(rows), keys)

    def _row_of_collided(self, key: pa.RecordBatch, hashes: Array) -> int:
        name = _tuple(key)
        row = self._collided.get(name)
        if row is None:
            self._pieces.append(key)
            row = int(self._table.append(hashes, findable=np.zeros(1, np.bool_))[0])
            self._collided[name] = row
        return row


def same_keys(left: pa.RecordBatch, right: pa.RecordBatch) -> Array:
    """Mask: the rows are equal, column by column. NULL and NaN are equal to themselves."""
    same = np.ones(left.num_rows, np.bool_)
    for mine, other in zip(left.columns, right.columns, strict=True):
        same &= _equal(mine, other)
    return same


def _equal(left: pa.Array, right: pa.Array) -> Array:
    """Mask of equal values; NULL equals NULL and NaN equals NaN."""
    same = pc.equal(left, right)
    if left.null_count or right.null_count:
        same = pc.if_else(pc.is_valid(same), same, pc.equal(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_floating(left.type):
        both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        same = pc.or_(same, pc.fill_null(both_nan, False))
    return same.to_numpy(zero_copy_only=False)


def _tuple(key: pa.RecordBatch) -> tuple[Any, ...]:
    """A key of one row as something a dict finds again, also when it is NaN."""
    return tuple("NaN" if value != value else (value,) for column in key.columns for value in column.to_pylist())
