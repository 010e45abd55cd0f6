"""Rows by a time at which something is to happen with them: added at any time, taken out when it has passed."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray


class Deadlines:
    """Rows in buckets of `width_ms`. A row may be in several; whoever takes it out looks whether it is still meant."""

    def __init__(self, width_ms: int) -> None:
        self._width_ms = width_ms
        self._buckets: dict[int, list[tuple[Array, Array]]] = {}
        self._order: list[int] = []

    def add(self, rows: Array, times: Array) -> None:
        """Rows that are due at `times`."""
        if not len(rows):
            return
        buckets = times // self._width_ms
        order = np.argsort(buckets, kind="stable")
        present, starts = np.unique(buckets[order], return_index=True)
        pieces = zip(np.split(rows[order], starts[1:]), np.split(times[order], starts[1:]), strict=True)
        for bucket, piece in zip(present.tolist(), pieces, strict=True):
            if bucket not in self._buckets:
                self._buckets[bucket] = []
                bisect.insort(self._order, bucket)
            self._buckets[bucket].append(piece)

    def earliest(self) -> int:
        """The least time that is held; the largest 64-bit integer for none."""
        if not self._order:
            return (1 << 63) - 1
        return min(int(times.min()) for _, times in self._buckets[self._order[0]])

    def passed(self, now_ms: int) -> Array:
        """The rows that are due at or before `now_ms`, each once; they are forgotten here."""
        count = bisect.bisect_right(self._order, now_ms // self._width_ms)
        found = [piece for bucket in self._order[:count] for piece in self._buckets.pop(bucket)]
        del self._order[:count]
        if not found:
            return np.zeros(0, np.int64)
        rows, times = (np.concatenate([piece[side] for piece in found]) for side in (0, 1))
        is_due = times <= now_ms
        self.add(rows[~is_due], times[~is_due])
        return np.unique(rows[is_due])
