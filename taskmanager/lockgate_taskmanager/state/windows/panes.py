"""Which panes have rows, and in which key groups: what is known of windows without looking at their rows."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any

import numpy as np

from lockgate_taskmanager.state.columns.arrays import by_value

Array = Any  # numpy.ndarray


class Panes:
    """A bit for each pane and key group. There may be a bit where there is no row, never the other way round."""

    def __init__(self, owned: range) -> None:
        """owned: the key groups that there are."""
        self._owned = owned
        self._groups: dict[int, Array] = {}  # by pane
        self._order: list[int] = []

    def add(self, panes: Array, groups: Array) -> None:
        """There are rows in these panes, each in the key group beside it."""
        for pane, (mine,) in by_value(panes, groups - self._owned.start):
            if pane not in self._groups:
                self._groups[pane] = np.zeros(len(self._owned), np.bool_)
                bisect.insort(self._order, pane)
            self._groups[pane][mine] = True

    def among(self, panes: Array) -> Array:
        """Mask: there may be rows in the pane. Costs by those asked for, not by those that there are."""
        present, places = np.unique(panes, return_inverse=True)
        return np.array([pane in self._groups for pane in present.tolist()], np.bool_)[places]

    def all(self) -> list[int]:
        """All panes, in order."""
        return self._order

    def until(self, time_ms: int, after_ms: int | None = None) -> list[int]:
        """The panes that start at or before a moment, in order; after_ms: and behind that one."""
        first = 0 if after_ms is None else bisect.bisect_right(self._order, after_ms)
        return self._order[first : bisect.bisect_right(self._order, time_ms)]

    def within(self, panes: Iterable[int]) -> list[int]:
        """Those of them that there are, in order."""
        return sorted(self._groups.keys() & set(panes))

    def in_group(self, panes: Iterable[int], group: int) -> list[int]:
        """Those of some panes that there are with rows in this key group."""
        return [pane for pane in panes if self._groups[pane][group - self._owned.start]]

    def groups(self, panes: Iterable[int]) -> list[int]:
        """The key groups with rows in one of some panes that there are."""
        found = np.zeros(len(self._owned), np.bool_)
        for pane in panes:
            found |= self._groups[pane]
        return (np.flatnonzero(found) + self._owned.start).tolist()

    def drop(self, panes: Iterable[int]) -> None:
        """Their rows are gone."""
        for pane in panes:
            del self._groups[pane]
        self._order = sorted(self._groups)
