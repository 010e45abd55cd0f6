"""How far event time has come in the state of one subtask.

The subtasks that wrote a snapshot need not have come equally far: in `at_least_once` each has seen other watermarks
before its barrier, and who is idle depends on what came first. After a rescale one subtask takes up key groups of
several. Its own time is then the least of theirs, so that no record is taken for late that was not. But windows of
key groups that were further on have fired, which must not happen again, with the records alone that are left or come
after. So it is remembered which key groups are *ahead*, and how far, until the subtask's time has passed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

Array = Any  # numpy.ndarray
Ahead = tuple[int, int, int]  # first key group, the one behind the last, and the watermark that they had come to


class Restored(Protocol):
    """What one subtask has stored: see `stored.About`."""

    @property
    def owned(self) -> range:
        """Key groups of the subtask that wrote it; empty in older files."""
        ...

    @property
    def watermark(self) -> int | None:
        """The time of that subtask."""
        ...

    @property
    def ahead(self) -> tuple[Ahead, ...]:
        """Which of its key groups had come further."""
        ...


@dataclass(frozen=True, slots=True)
class Reached:
    """How far event time has come for each key. least: for all; groups: of each key group, None where all are equal."""

    least: int
    groups: Array | None = None

    def of(self, hashes: Array) -> int | Array:
        """For keys with these hashes: one watermark for all, or one for each."""
        return self.least if self.groups is None else self.groups[np.mod(hashes, len(self.groups))]


def are_whole(pieces: Sequence[Restored], owned: range) -> bool:
    """False when key groups come from a subtask that has stored nothing: it knew of no time yet. Older files: True."""
    if not pieces or not all(one.owned for one in pieces):
        return bool(pieces)
    return set(owned) <= {group for one in pieces for group in one.owned}


class EventClock:
    """Two watermarks in milliseconds, which only rise.

    now: what has fired and what is late goes by it. before_end: the same but for the end of the input, and what a
    snapshot tells. A job that was drained may be started again, or restarted, and then reads what its sources had left.
    The end of the input purges every window, so none can fire a second time for records it has told already.
    """

    def __init__(self, max_parallelism: int, owned: range) -> None:
        """owned: key groups of the subtask."""
        self.now = self.before_end = MIN_WATERMARK
        self._max_parallelism = max_parallelism
        self._owned = owned
        self._ahead: tuple[Ahead, ...] = ()
        self._reached = Reached(MIN_WATERMARK)

    @property
    def reached(self) -> Reached:
        """How far event time has come for each key."""
        return self._reached

    @property
    def ahead(self) -> tuple[Ahead, ...]:
        """Key groups of this subtask that had come further than `before_end`: what a snapshot tells."""
        return self._ahead

    def advance(self, watermark: int) -> None:
        """Event time has come to `watermark`; MAX_WATERMARK at the end of the input."""
        self.now = max(watermark, self.now)
        if self.now != MAX_WATERMARK:
            self.before_end = self.now
        self._ahead = tuple(one for one in self._ahead if one[2] > self.before_end)
        self._reached = self._by_group()

    def restore(self, pieces: Iterable[Restored]) -> None:
        """Of several watermarks the least counts, but for the key groups of those that had come further."""
        found = list(pieces)
        times = [MIN_WATERMARK if one.watermark is None else one.watermark for one in found]
        self.now = self.before_end = min(times) if are_whole(found, self._owned) else MIN_WATERMARK
        groups = np.full(self._max_parallelism, self.now)
        for piece, time in zip(found, times, strict=True):
            for first, behind, ahead in ((piece.owned.start, piece.owned.stop, time), *piece.ahead):
                groups[first:behind] = np.maximum(groups[first:behind], ahead)
        runs = groupby(self._owned, key=lambda group: int(groups[group]))
        lengths = [(time, list(run)) for time, run in runs if time > self.now]
        self._ahead = tuple((run[0], run[-1] + 1, time) for time, run in lengths)
        self._reached = self._by_group()

    def _by_group(self) -> Reached:
        if all(time <= self.now for _, _, time in self._ahead):
            return Reached(self.now)
        groups = np.full(self._max_parallelism, self.now)
        for first, behind, time in self._ahead:
            groups[first:behind] = max(time, self.now)
        return Reached(self.now, groups)
