"""A hash table from 64-bit hashes to row numbers in numpy: thousands of look-ups at once, independent of its size.

Open addressing with linear probing, at most half full. A Python dict takes four cache misses per key one after the
other; here a batch's misses overlap, and a million keys are loaded in tens of milliseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lockgate_taskmanager.state.columns.growing import GrowingArray

Array = Any  # numpy.ndarray
_FIRST_BITS = 11


class HashTable:
    """Row i has hash `hashes[i]`; hashes are well mixed (their high bits choose the slot)."""

    def __init__(self) -> None:
        self._hashes = GrowingArray(np.int64, 0)
        self._bits = _FIRST_BITS
        self._slots = np.zeros(1 << _FIRST_BITS, np.int32)  # row + 1; 0: free

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._hashes)

    @property
    def hashes(self) -> Array:
        """The hash of every row. A returned array never changes."""
        return self._hashes.values

    def find(self, hashes: Array) -> Array:
        """The row of each hash, -1 where there is none."""
        rows = np.full(len(hashes), -1, np.int64)
        slots, stored, mask = self._slots, self._hashes, len(self._slots) - 1
        open_ = np.arange(len(hashes))
        positions = self._positions(hashes)
        while len(open_):
            found = slots[positions].astype(np.int64) - 1
            taken = found >= 0
            hit = taken & (stored[found] == hashes[open_])
            rows[open_[hit]] = found[hit]
            further = taken & ~hit
            open_ = open_[further]
            positions = (positions[further] + 1) & mask
        return rows

    def append(self, hashes: Array, findable: Array | None = None) -> Array:
        """Adds rows at the end; returns their numbers.

        findable: mask of the rows that `find` shall return, None for all; their hashes are distinct and new.
        """
        rows = np.arange(self.count, self.count + len(hashes))
        self._reserve(self.count + len(hashes))
        self._hashes.append(hashes)
        self._place(rows if findable is None else rows[findable])
        return rows

    def _reserve(self, count: int) -> None:
        if 2 * count > len(self._slots):
            findable = self._slots[self._slots > 0].astype(np.int64) - 1
            while 2 * count > 1 << self._bits:
                self._bits += 1
            self._slots = np.zeros(1 << self._bits, np.int32)
            self._place(findable)

    def _place(self, rows: Array) -> None:
        """Puts rows into free slots; of several that probe the same one the last written stays, the others go on."""
        slots, mask = self._slots, len(self._slots) - 1
        positions = self._positions(self._hashes[rows])
        while len(rows):
            free = slots[positions] == 0
            slots[positions[free]] = rows[free] + 1
            waiting = slots[positions] != rows + 1
            rows = rows[waiting]
            positions = (positions[waiting] + 1) & mask

    def _positions(self, hashes: Array) -> Array:
        return (hashes.view(np.uint64) >> np.uint64(64 - self._bits)).astype(np.int64)


def mixed(hashes: Array, times: Array) -> Array:
    """Well-mixed hashes of pairs of a hash and a time."""
    found = hashes.astype(np.int64).view(np.uint64) ^ (times.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    found = (found ^ (found >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (found ^ (found >> np.uint64(32))).view(np.int64)
