"""Numpy columns that are written in place while snapshots still read the old values.

Neither a freeze nor the first write after it copies whole columns: before a value is overwritten for the first time, it
is set aside for each snapshot that is still being read, and the reader takes it from there.

    write rows --the old values of rows below `count`, once--> set aside --> FrozenColumns.take
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.columns.growing import GrowingArray, doubled, grown

Array = Any  # numpy.ndarray
_AT_ONCE = 1 << 14  # rows that a reader takes before others may write, or run Python


class FrozenColumns:
    """The first `count` rows as they were. Read on any thread."""

    def __init__(self, columns: Sequence[Array], count: int, lock: threading.Lock, reader: Freeze) -> None:
        """lock: held by writers of `columns`; reader: whether this copy is still read."""
        self.count = count
        self._columns = tuple(columns)
        self._lock = lock
        self._reader = reader
        self._set_aside = np.zeros(count, np.int32)  # place among what was put aside + 1; 0: the row is as it was
        self._aside = tuple(GrowingArray(column.dtype, 0) for column in columns)

    @property
    def is_read(self) -> bool:
        """False when no values need to be set aside any more."""
        return not self._reader.done

    def take(self, rows: Array) -> tuple[Array, ...]:
        """Some rows of every column."""
        parts = [self._taken(rows[start : start + _AT_ONCE]) for start in range(0, max(len(rows), 1), _AT_ONCE)]
        return tuple(np.concatenate(some) for some in zip(*parts, strict=True)) if len(parts) > 1 else parts[0]

    def put_aside(self, rows: Array) -> None:
        """Sets aside the values of rows that are about to be written. Called under the lock."""
        mine = rows[rows < self.count]
        mine = mine[self._set_aside[mine] == 0]
        first = len(self._aside[0])
        self._set_aside[mine] = np.arange(first + 1, first + 1 + len(mine))
        for aside, column in zip(self._aside, self._columns, strict=True):
            aside.append(column[mine])

    def _taken(self, rows: Array) -> tuple[Array, ...]:
        with self._lock:
            found = tuple(column[rows] for column in self._columns)
            places = self._set_aside[rows]
            is_aside = places > 0
            for values, aside in zip(found, self._aside, strict=True):
                values[is_aside] = aside[places[is_aside] - 1]
        return found


class LiveColumns:
    """Columns with copy-on-write snapshots. Used from the subtask's own thread."""

    def __init__(self, kinds: Sequence[tuple[Any, Any]], capacity: int) -> None:
        """kinds: for each column the fill value and the dtype."""
        self._fills = [fill for fill, _ in kinds]
        self._columns = tuple(np.full(capacity, *kind) for kind in kinds)
        self._lock = threading.Lock()
        self._frozen: tuple[FrozenColumns, ...] = ()

    def __len__(self) -> int:
        """Rows that there is room for."""
        return len(self._columns[0])

    def __getitem__(self, column: int) -> Array:
        """A column, to be read."""
        return self._columns[column]

    def write(self, rows: Array, values: Sequence[Array]) -> None:
        """Replaces distinct rows. Cost grows with these."""
        self._frozen = tuple(frozen_columns for frozen_columns in self._frozen if frozen_columns.is_read)
        with self._lock:
            for frozen_columns in self._frozen:
                frozen_columns.put_aside(rows)
            for column, some in zip(self._columns, values, strict=True):
                column[rows] = some

    def freeze(self, count: int, reader: Freeze) -> FrozenColumns:
        """The first `count` rows, as they are now, for as long as `reader` is not done. Copies nothing."""
        frozen = FrozenColumns(self._columns, count, self._lock, reader)
        self._frozen = (*self._frozen, frozen)
        return frozen

    def reserve(self, count: int) -> None:
        """Makes room for `count` rows. Frozen copies keep the old columns, which are not written any more."""
        if count > len(self):
            self._move(self._columns, doubled(len(self), count))

    def keep(self, rows: Array, capacity: int) -> None:
        """Renumbers rows[i] to i; drops all other rows."""
        self._move([column[rows] for column in self._columns], capacity)

    def _move(self, columns: Sequence[Array], capacity: int) -> None:
        fills = zip(columns, self._fills, strict=True)
        self._columns = tuple(grown(column, capacity, fill) for column, fill in fills)
        self._frozen = ()
