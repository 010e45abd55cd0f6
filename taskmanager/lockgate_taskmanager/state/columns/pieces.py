"""Append-only rows of Arrow data in a few pieces, from which any rows can be taken without touching the others.

No array comes near the 2 GiB of text that 32-bit offsets can address: pieces are joined up to a bound, and taken rows
are returned in as many batches as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.columns.arrays import distinct

Array = Any  # numpy.ndarray
LARGEST_BATCH_BYTES = 512 << 20
"""Rows are picked into batches of no more than this, unless one row alone has more."""

_LARGE_ROWS = 1 << 18
_LARGE_BYTES = 64 << 20


class FrozenPieces:
    """Rows as they were. Used from any thread."""

    __slots__ = ("_starts", "batches", "count", "schema")

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        """batches: the rows, of this schema."""
        self.schema = schema
        self.batches = tuple(batches)
        ends = np.cumsum([0, *(batch.num_rows for batch in self.batches)])
        self._starts = ends[:-1]
        self.count = int(ends[-1])

    def __len__(self) -> int:
        return self.count

    def take(self, rows: Array) -> pa.RecordBatch:
        """Some rows, in the order asked for. Raises pa.ArrowInvalid when their text is too long for one batch."""
        return _taken(self.schema, self.batches, self._starts, rows)

    def each(self, rows: Array) -> Iterator[pa.RecordBatch]:
        """The same in as many batches as are needed, however many rows."""
        for start in range(0, len(rows), _LARGE_ROWS):
            yield from fitting(self.take, rows[start : start + _LARGE_ROWS])


class Pieces:
    """Append-only rows, numbered from 0 in the order in which they were added."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._pieces: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._count = self._bytes = 0

    @property
    def bytes_a_row(self) -> int:
        """What a row takes on average."""
        return self._bytes // max(1, self._count)

    def __len__(self) -> int:
        return self._count

    def append(self, rows: pa.RecordBatch) -> None:
        """Adds rows at the end, and joins small pieces of like size: each row is copied a few times in all."""
        if not rows.num_rows:
            return
        if rows.schema != self.schema:  # what may be NULL, or metadata
            rows = pa.RecordBatch.from_arrays(rows.columns, schema=self.schema)
        self._pieces.append(rows)
        self._starts.append(self._count)
        self._count += rows.num_rows
        self._bytes += rows.nbytes
        while len(self._pieces) > 1 and _are_to_be_joined(*self._pieces[-2:]):
            self._pieces[-2:] = [pa.concat_batches(self._pieces[-2:])]
            self._starts.pop()

    def extend(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds many batches; small ones are joined, and each row is copied once at most."""
        some: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if some and (rows + batch.num_rows > _LARGE_ROWS or size + batch.nbytes > _LARGE_BYTES):
                self.append(_joined(some))
                some, rows, size = [], 0, 0
            if batch.num_rows:
                some.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
        if some:
            self.append(_joined(some))

    def take(self, rows: Array) -> pa.RecordBatch:
        """Some rows, in the order asked for. Raises pa.ArrowInvalid when their text is too long for one batch."""
        return _taken(self.schema, self._pieces, self._starts, rows)

    def frozen(self) -> FrozenPieces:
        """All rows as they are now; copies nothing."""
        return FrozenPieces(self.schema, self._pieces)


def fitting(take: Callable[[Array], pa.RecordBatch], rows: Array) -> Iterator[pa.RecordBatch]:
    """What `take` gives for some rows, in batches that are not too large. take: see FrozenPieces."""
    try:
        found = take(rows)
    except pa.ArrowInvalid:  # more text than an array can hold
        if len(rows) < 2:
            raise
        found = None
    if found is not None and (len(rows) < 2 or found.nbytes <= LARGEST_BATCH_BYTES):
        yield found
        return
    middle = len(rows) // 2
    del found
    yield from fitting(take, rows[:middle])
    yield from fitting(take, rows[middle:])


def cut(table: pa.Table) -> Iterator[pa.Table]:
    """A table in slices of which each fits into one batch, if rows are of about one size; a small one as it is."""
    if table.nbytes <= LARGEST_BATCH_BYTES or table.num_rows < 2:
        yield table
        return
    rows = max(1, LARGEST_BATCH_BYTES * table.num_rows // table.nbytes)
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _taken(
    schema: pa.Schema, pieces: Sequence[pa.RecordBatch], starts: Sequence[int] | Array, rows: Array
) -> pa.RecordBatch:
    if not len(rows):
        return pa.RecordBatch.from_pylist([], schema)
    place: Array = np.searchsorted(starts, rows, "right") - 1
    first = int(place[0])
    if (place == first).all():
        return pieces[first].take(pa.array(rows - starts[first]))
    touched = distinct(place)
    order = np.argsort(place, kind="stable")
    wanted = np.split(rows[order], np.searchsorted(place[order], touched[1:]))
    found = [
        pieces[item].take(pa.array(mine - starts[item])) for item, mine in zip(touched.tolist(), wanted, strict=True)
    ]
    together = pa.concat_batches(found)
    if (order[1:] > order[:-1]).all():
        return together
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return together.take(pa.array(back))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _are_to_be_joined(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    rows = left.num_rows + right.num_rows
    if left.num_rows > 2 * right.num_rows or rows > _LARGE_ROWS:
        return False
    return bool(left.nbytes + right.nbytes <= _LARGE_BYTES)
