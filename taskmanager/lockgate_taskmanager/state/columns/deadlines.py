"""An index of rows by due time."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from lockgate_taskmanager.state.columns.arrays import by_value, distinct
from lockgate_taskmanager.state.columns.growing import GrowingArray

Array = Any  # numpy.ndarray
NEVER = (1 << 63) - 1


class Deadlines:
    """Rows in buckets of `width_ms`, taken out when their time has passed.

    A row may be in several buckets; the caller checks whether a row is really due.
    """

    def __init__(self, width_ms: int) -> None:
        self._width_ms = width_ms
        self._buckets: dict[int, list[tuple[Array, ...]]] = {}
        self._order: list[int] = []

    def add(self, rows: Array, times: Array) -> None:
        """Rows that are due at `times`."""
        for bucket, piece in by_value(times // self._width_ms, rows, times):
            if bucket not in self._buckets:
                self._buckets[bucket] = []
                bisect.insort(self._order, bucket)
            self._buckets[bucket].append(piece)

    def earliest(self) -> int:
        """The least time that is held; NEVER for none."""
        if not self._order:
            return NEVER
        return min(int(times.min()) for _, times in self._buckets[self._order[0]])

    def passed(self, now_ms: int) -> Array:
        """Removes and returns the rows that are due at or before `now_ms`, each once."""
        count = bisect.bisect_right(self._order, now_ms // self._width_ms)
        found = [piece for bucket in self._order[:count] for piece in self._buckets.pop(bucket)]
        del self._order[:count]
        if not found:
            return np.zeros(0, np.int64)
        rows, times = (np.concatenate([piece[side] for piece in found]) for side in (0, 1))
        is_due = times <= now_ms
        self.add(rows[~is_due], times[~is_due])
        return distinct(rows[is_due])


class Due:
    """Which rows are due, with one time for each row.

    A row is indexed under the earliest of its times so far, so postponing it costs nothing. A row that is taken out too
    early is indexed again under its present time.
    """

    def __init__(self, width_ms: int) -> None:
        """width_ms: of the buckets of Deadlines."""
        self._times = GrowingArray(np.int64, NEVER)
        self._filed = GrowingArray(np.int64, NEVER)
        self._deadlines = Deadlines(width_ms)
        self._next = NEVER

    def set(self, rows: Array, times: Array) -> None:
        """The rows (distinct) are due at `times` from now on; NEVER for not at all."""
        if not len(rows):
            return
        count = int(rows.max()) + 1
        self._times.extend_to(count)
        self._filed.extend_to(count)
        self._times[rows] = times
        self._file(rows, times)

    def passed(self, now_ms: int) -> Array:
        """Rows that are due at or before `now_ms`, in order of their numbers; not again until they are set again."""
        if now_ms < self._next:
            return np.zeros(0, np.int64)
        rows = self._deadlines.passed(now_ms)
        self._next = self._deadlines.earliest()
        self._filed[rows] = NEVER
        times = self._times[rows]
        is_due = (times <= now_ms) & (times != NEVER)
        self._file(rows[~is_due], times[~is_due])
        return rows[is_due]

    def next(self) -> int:
        """No row is due before this; NEVER when none is."""
        return self._next

    def _file(self, rows: Array, times: Array) -> None:
        earlier = times < self._filed[rows]
        rows, times = rows[earlier], times[earlier]
        if len(rows):
            self._filed[rows] = times
            self._deadlines.add(rows, times)
            self._next = min(self._next, int(times.min()))
