"""An index of the panes with rows, by key group."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any

import numpy as np

from lockgate_taskmanager.state.columns.arrays import by_value

Array = Any  # numpy.ndarray


class Panes:
    """A bit for each pane and key group. A bit may be set without a row, but is never missing where there is one."""

    def __init__(self, owned: range) -> None:
        """owned: the key groups of the subtask."""
        self._owned = owned
        self._groups: dict[int, Array] = {}  # by pane
        self._order: list[int] = []

    def add(self, panes: Array, groups: Array) -> None:
        """Marks pairs of pane and key group that have rows."""
        for pane, (mine,) in by_value(panes, groups - self._owned.start):
            if pane not in self._groups:
                self._groups[pane] = np.zeros(len(self._owned), np.bool_)
                bisect.insort(self._order, pane)
            self._groups[pane][mine] = True

    def among(self, panes: Array) -> Array:
        """Mask of the panes that may have rows. Cost grows with `panes`, not with the panes in the index."""
        present, places = np.unique(panes, return_inverse=True)
        return np.array([pane in self._groups for pane in present.tolist()], np.bool_)[places]

    def all(self) -> list[int]:
        """All panes, in order."""
        return self._order

    def until(self, time_ms: int, after_ms: int | None = None) -> list[int]:
        """The panes that start at or before `time_ms`, and after `after_ms` if given, in order."""
        first = 0 if after_ms is None else bisect.bisect_right(self._order, after_ms)
        return self._order[first : bisect.bisect_right(self._order, time_ms)]

    def in_group(self, panes: Iterable[int], group: int) -> list[int]:
        """Those of `panes` that have rows in this key group."""
        return [pane for pane in panes if self._groups[pane][group - self._owned.start]]

    def groups(self, panes: Iterable[int]) -> list[int]:
        """The key groups that have rows in any of `panes`."""
        found = np.zeros(len(self._owned), np.bool_)
        for pane in panes:
            found |= self._groups[pane]
        return (np.flatnonzero(found) + self._owned.start).tolist()

    def drop(self, panes: Iterable[int]) -> None:
        """Removes panes whose rows were deleted."""
        for pane in panes:
            del self._groups[pane]
        self._order = sorted(self._groups)
