"""Rows found by key and pane, from which windows are recomputed that change after they have fired."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # numpy.ndarray


class PaneRows:
    """Immutable. Keys are numbered from 0."""

    def __init__(self, keys: Array, panes: Array, rows: Array) -> None:
        """At least one row, with its key and its pane; of a key in a pane there is one row."""
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
