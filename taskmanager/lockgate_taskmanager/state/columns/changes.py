"""Which rows of a state have changed since a snapshot: the basis of increments.

The state has a version, which rises with every snapshot. Each row has the version in which it was last changed. So the
next increment finds everything newer than its base, whatever happens to the snapshots in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lockgate_taskmanager.state.columns.growing import GrowingArray

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes as of a snapshot of that version.

    at: the version of each row's last change, None if not tracked; floor: changes since an older version are unknown.
    `at` is not frozen: a row that changes again gets a higher version, so it stays among the changed rows, with the
    value that it had at the snapshot.
    """

    version: int
    at: Array | None
    floor: int

    def since(self, version: int) -> Array | None:
        """The rows that have changed since the snapshot of a version, in order; None where that is not known."""
        if self.at is None or version < self.floor:
            return None
        return np.flatnonzero(self.at > version)


class Changes:
    """Tracks the version of each row. Used from the subtask's own thread; rows are numbered from 0."""

    def __init__(self, is_kept: bool) -> None:
        """is_kept: False when no snapshot is ever an increment, so nothing has to be tracked."""
        self._at = GrowingArray(np.int32, 0) if is_kept else None
        self._version = 1
        self._floor = 0

    def mark(self, rows: Array, count: int) -> None:
        """Marks changed or added rows. count: rows in all."""
        if self._at is not None:
            self._at.extend_to(count)
            self._at[rows] = self._version

    def last(self, rows: Array, count: int) -> Array:
        """The version in which each of some rows was changed last. count: rows in all."""
        assert self._at is not None
        self._at.extend_to(count)
        return self._at[rows]

    def restored(self, count: int) -> None:
        """Starts over with `count` rows, none of which has changed since a snapshot of version 0."""
        if self._at is not None:
            self._at.extend_to(count)
            self._at.values[:] = 0

    def moved(self, rows: Array, *, is_complete: bool) -> None:
        """Renumbers rows[i] to i. is_complete: no increment needs to list the other rows as deleted."""
        if self._at is not None:
            moved, self._at = self._at[rows], GrowingArray(np.int32, 0)
            self._at.append(moved)
        if not is_complete:
            self._floor = self._version

    def freeze(self, count: int) -> Changed:
        """The changes of the first `count` rows. Copies nothing; versions in a returned array only rise."""
        if self._at is not None:
            self._at.extend_to(count)
        found = Changed(self._version, None if self._at is None else self._at.values, self._floor)
        self._version += 1
        return found
