"""A numpy array that grows by doubling. An array returned by `values` keeps its length."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # numpy.ndarray
_FIRST_CAPACITY = 1024


class GrowingArray:
    """fill: the value of elements that were never written."""

    def __init__(self, dtype: Any, fill: Any) -> None:
        self._fill = fill
        self._memory = np.full(_FIRST_CAPACITY, fill, dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, places: Array) -> Array:
        return self._memory[places]

    def __setitem__(self, places: Array, values: Any) -> None:
        self._memory[places] = values

    @property
    def values(self) -> Array:
        """All of it, by reference."""
        return self._memory[: self._count]

    def append(self, values: Array) -> None:
        """Adds values at the end."""
        start = self._count
        self.extend_to(start + len(values))
        self._memory[start : self._count] = values

    def extend_to(self, count: int) -> None:
        """Makes it at least this long."""
        capacity = len(self._memory)
        if count > capacity:
            self._memory = grown(self._memory, doubled(capacity, count), self._fill)
        self._count = max(count, self._count)


def doubled(capacity: int, count: int) -> int:
    """A capacity that is doubled until `count` fit."""
    while capacity < count:
        capacity *= 2
    return capacity


def grown(old: Array, capacity: int, fill: Any) -> Array:
    """The same values with more room behind them."""
    new = np.empty(capacity, old.dtype)
    new[: len(old)] = old
    new[len(old) :] = fill
    return new
