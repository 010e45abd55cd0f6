"""Which rows are due: a time for each row, found by time and not by looking at the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskmanager.state.deadlines import Deadlines
from taskmanager.state.growing import GrowingArray

Array = Any  # numpy.ndarray
NEVER = (1 << 63) - 1


class Due:
    """A row is filed under the earliest time it was ever to be due at, so that moving it later files nothing.

    What is taken out too early for that reason is filed again under its true time.
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
