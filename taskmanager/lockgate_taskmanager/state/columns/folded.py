"""A column of keyed state: numpy values that grow by doubling, are folded in place and frozen copy-on-write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.columns.arrays import require_types
from lockgate_taskmanager.state.columns.growing import doubled, grown
from lockgate_taskmanager.state.columns.physical import Physical, add_decimals, physical, pick_by_arrow
from lockgate_taskmanager.state.layout import Fold
from lockgate_taskmanager.task.program import DataError, UserError

Array = Any  # numpy.ndarray
_FIRST_CAPACITY = 1024


class Freeze:
    """Ties frozen columns to the snapshot that reads them; `done` ends the need to copy before writing."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False


class FrozenColumn:
    """The first `count` values of a column as they were at the freeze."""

    def __init__(self, form: Physical, values: Array, known: Array | None) -> None:
        self._form = form
        self._values = values
        self._known = known

    def to_arrow(self, rows: Array | None = None) -> pa.Array:
        """An Arrow array of the column's type. rows: those wanted, None for all."""
        values, known = self._values, self._known
        if rows is not None:
            values, known = values[rows], None if known is None else known[rows]
        return self._form.write(values, None if known is None else ~known)


class Column:
    """Values of one part (count, sum, min or max) for every key; row i belongs to key i.

    A count knows every value; of the others a value is unknown (NULL) until a non-null input has come.
    """

    def __init__(self, fold: Fold, kind: pa.DataType) -> None:
        """Raises UserError when `kind` cannot be folded so."""
        self.fold = fold
        self._form = physical(kind)
        if fold is Fold.SUM and not _is_number(kind):
            raise UserError(f"values of type {kind} cannot be summed; cast them to a number")
        self._values = np.full(_FIRST_CAPACITY, self._form.zero, self._form.dtype)
        self._known = None if fold is Fold.COUNT else np.zeros(_FIRST_CAPACITY, np.bool_)
        self._readers: tuple[Freeze, ...] = ()  # snapshots that may still read these very arrays
        self._spare: tuple[Array, Array | None, tuple[Freeze, ...]] | None = None  # old memory, to copy into

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self._form.type

    def reserve(self, count: int) -> None:
        """Makes room for `count` values in all; new ones are unknown (a count: zero)."""
        if count > len(self._values):
            self._reallocate(doubled(len(self._values), count))

    def merge(self, rows: Array, partial: pa.Array) -> None:
        """Folds one partial value into each of `rows` (distinct). Raises DataError on overflow."""
        self._own()
        known = None
        if partial.null_count:
            known = pc.is_valid(partial).to_numpy(zero_copy_only=False)
            rows, partial = rows[known], partial.drop_null()
        values = self._form.read(partial)
        current = self._values[rows]
        if self._known is None:
            self._values[rows] = _sum_integers(current, values)
            return
        had = self._known[rows]
        folded = self._combine(current, values) if had.any() else values
        self._values[rows] = folded if had.all() or not had.any() else np.where(had, folded, values)
        self._known[rows] = True

    def reset(self, rows: Array) -> None:
        """Makes the values of `rows` those of new ones."""
        self._own()
        self._values[rows] = self._form.zero
        if self._known is not None:
            self._known[rows] = False

    def take(self, rows: Array) -> pa.Array:
        """The values of `rows`."""
        return self._form.write(self._values[rows], None if self._known is None else ~self._known[rows])

    def freeze(self, count: int, reader: Freeze) -> FrozenColumn:
        """The first `count` values, as they are now, whatever is merged later. Copies nothing."""
        self._readers = (*(reader for reader in self._readers if not reader.done), reader)
        return FrozenColumn(self._form, self._values[:count], None if self._known is None else self._known[:count])

    def restore(self, pieces: Sequence[pa.Array]) -> None:
        """Replaces everything by the values of a snapshot, one piece after the other. Raises TypeError for others."""
        require_types([values.type for values in pieces], [self.type] * len(pieces))
        self.reserve(max(sum(map(len, pieces)), 1))
        start = 0
        for values in pieces:
            end = start + len(values)
            known = pc.is_valid(values).to_numpy(zero_copy_only=False)
            if self._form.dtype is np.object_:
                self._values[start:end] = self._form.read(values)
            else:
                self._values[start:end][known] = self._form.read(values.drop_null())
            if self._known is not None:
                self._known[start:end] = known
            start = end

    def _own(self) -> None:
        """Copies the column when a snapshot still reads it; into known memory if possible, fresh pages are slow."""
        readers, spare = self._readers, self._spare
        self._readers = ()
        if all(reader.done for reader in readers):
            return
        old = (self._values, self._known, readers)
        if spare is not None and len(spare[0]) == len(self._values) and all(array.done for array in spare[2]):
            np.copyto(spare[0], self._values)
            self._values = spare[0]
            if self._known is not None and spare[1] is not None:
                np.copyto(spare[1], self._known)
                self._known = spare[1]
        else:
            self._reallocate(len(self._values))
        self._spare = old

    def _reallocate(self, capacity: int) -> None:
        self._values = grown(self._values, capacity, self._form.zero)
        if self._known is not None:
            self._known = grown(self._known, capacity, False)
        self._readers = ()
        self._spare = None

    def _combine(self, current: Array, values: Array) -> Array:
        kind = self._form.type
        if self.fold is Fold.SUM:
            if pa.types.is_decimal(kind):
                return add_decimals(current, values, kind)
            return current + values if self._form.dtype is np.float64 else _sum_integers(current, values)
        largest = self.fold is Fold.MAX
        if self._form.dtype in (np.float64, np.int64):
            # Spark: NaN is greater than any other number
            return np.maximum(current, values) if largest else np.fmin(current, values)
        return pick_by_arrow(current, values, self._form, largest)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _sum_integers(left: Array, right: Array) -> Array:
    total = left + right
    if (((left ^ total) & (right ^ total)) < 0).any():
        raise DataError("a count or sum of integers has left the range of a 64-bit integer; cast the input to DECIMAL")
    return total
