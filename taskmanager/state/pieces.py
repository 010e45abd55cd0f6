"""Rows of Arrow data that are only added, in few pieces; any of them are picked without touching the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Array = Any  # numpy.ndarray
_LARGE_ROWS = 1 << 18
_LARGE_BYTES = 64 << 20


class Pieces:
    """See the module. Rows are numbered from 0 in the order in which they were added."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._pieces: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: pa.RecordBatch) -> None:
        """Adds rows at the end, and joins small pieces of like size: each row is copied a few times in all."""
        if not rows.num_rows:
            return
        self._pieces.append(rows)
        self._starts.append(self._count)
        self._count += rows.num_rows
        while len(self._pieces) > 1 and _are_to_be_joined(*self._pieces[-2:]):
            self._pieces[-2:] = [pa.concat_batches(self._pieces[-2:])]
            self._starts.pop()

    def take(self, rows: Array) -> pa.RecordBatch:
        """Some rows, in the order asked for."""
        if not len(rows):
            return pa.RecordBatch.from_pylist([], self.schema)
        place: Array = np.searchsorted(self._starts, rows, "right") - 1
        touched = np.unique(place)
        if len(touched) == 1:
            return self._pieces[touched[0]].take(pa.array(rows - self._starts[touched[0]]))
        order = np.argsort(place, kind="stable")
        wanted = np.split(rows[order], np.searchsorted(place[order], touched[1:]))
        found = [
            self._pieces[one].take(pa.array(mine - self._starts[one]))
            for one, mine in zip(touched.tolist(), wanted, strict=True)
        ]
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return pa.concat_batches(found).take(pa.array(back))

    def frozen(self) -> pa.Table:
        """All rows as they are now; copies nothing."""
        return pa.Table.from_batches(self._pieces, self.schema)


def _are_to_be_joined(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    rows = left.num_rows + right.num_rows
    if left.num_rows > 2 * right.num_rows or rows > _LARGE_ROWS:
        return False
    return bool(left.nbytes + right.nbytes <= _LARGE_BYTES)
