"""Rows found by key and pane, from which windows are recomputed that change after they have fired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lockgate_taskmanager.state.columns.arrays import distinct

Array = Any  # numpy.ndarray


class PaneRows:
    """Immutable. Keys are numbered from 0. panes: those with rows, in order."""

    def __init__(self, keys: Array, panes: Array, rows: Array) -> None:
        """At least one row, with its key and its pane; of a key in a pane there is one row."""
        self.panes = distinct(panes)
        self._first = panes.min()
        self._span = panes.max() - self._first + 1
        codes = self._coded(keys, panes)
        order = np.argsort(codes)
        self._codes, self._rows = codes[order], rows[order]

    def among(self, keys: Array, panes: Array) -> tuple[Array, Array]:
        """The positions of those pairs of key and pane that have a row, and these rows."""
        codes = self._coded(keys, panes)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        is_known = (self._codes[at] == codes) & (panes >= self._first) & (panes < self._first + self._span)
        there = np.flatnonzero(is_known)
        return there, self._rows[at[there]]

    def _coded(self, keys: Array, panes: Array) -> Array:
        return keys * self._span + (panes - self._first)


def in_turn(panes: Array, starts: Array, ends: Array) -> Iterator[tuple[Array, Array]]:
    """The first of some panes in each window, then the second, and so on: the positions of windows and of their panes.

    panes: those with rows, in order; starts, ends: of the windows. Cost grows with these panes, however many panes the
    windows have.
    """
    first: Array = np.searchsorted(panes, starts)
    behind: Array = np.searchsorted(panes, ends)
    for number in range(int((behind - first).max(initial=0))):
        windows = np.flatnonzero(first + number < behind)
        yield windows, first[windows] + number
