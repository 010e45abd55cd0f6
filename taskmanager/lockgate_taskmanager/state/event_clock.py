"""The event time of one subtask's state.

The subtasks that wrote a snapshot may have reached different event times: in `at_least_once` each has seen different
watermarks before its barrier, and idleness depends on the order of arrival. After a rescale a subtask takes over key
groups of several subtasks. Its own time is the least of theirs, so that no record becomes late by the rescale. But the
windows of key groups that were further on have already fired, and must not fire again with only the remaining records.
So the clock records which key groups are *ahead*, and how far, until the subtask's time has passed them.

A job may also continue with a longer lateness. Windows that were already dropped do not come back: recreated, they
would contain late records only. So a snapshot records until when windows are *gone*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from lockgate_taskmanager.state.about import About, Ahead
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class Reached:
    """The event time of each key. least: of all keys; groups: of each key group, None if all are equal."""

    least: int
    groups: Array | None = None

    def of(self, hashes: Array) -> int | Array:
        """For keys with these hashes: one watermark for all, or one for each."""
        return self.least if self.groups is None else self.groups[np.mod(hashes, len(self.groups))]


def are_whole(pieces: Sequence[About], owned: range) -> bool:
    """False when key groups come from a subtask that stored nothing and so had no event time. Older files: True."""
    if not pieces or not all(piece.owned for piece in pieces):
        return bool(pieces)
    return set(owned) <= {group for piece in pieces for group in piece.owned}


class EventClock:
    """Two watermarks in milliseconds, which only rise.

    now: decides what has fired and what is late. before_end: the same without the end of the input; this is what a
    snapshot contains. A drained job may be started again, or restarted, and then reads on. The end of the input purges
    every window, so none can fire a second time for the same records.
    """

    def __init__(self, max_parallelism: int, owned: range, lateness_ms: int = 0) -> None:
        """owned: key groups of the subtask; lateness_ms: how long windows are kept after their end."""
        self.now = self.before_end = MIN_WATERMARK
        self._max_parallelism = max_parallelism
        self._owned = owned
        self._lateness_ms = lateness_ms
        self._ahead: tuple[Ahead, ...] = ()
        self._gone: tuple[Ahead, ...] = ()
        self._reached = self._kept = Reached(MIN_WATERMARK)

    @property
    def reached(self) -> Reached:
        """The event time of each key."""
        return self._reached

    @property
    def kept(self) -> Reached:
        """The event time that decides which windows are kept: those over for `lateness_ms` at that time are gone.

        Later than `reached` if an earlier run with a shorter lateness has dropped more windows.
        """
        return self._kept

    @property
    def ahead(self) -> tuple[Ahead, ...]:
        """The key groups of this subtask that are further on than `before_end`, for snapshots."""
        return self._ahead

    @property
    def gone(self) -> tuple[Ahead, ...]:
        """Until when the windows of these key groups are dropped, for snapshots."""
        mine = () if self.before_end == MIN_WATERMARK else ((self._owned.start, self._owned.stop, self.before_end),)
        here = [(first, behind, time - self._lateness_ms) for first, behind, time in (*mine, *self._ahead)]
        return (*here, *self._gone)

    def advance(self, watermark: int) -> None:
        """Advances event time to `watermark`; MAX_WATERMARK at the end of the input."""
        self.now = max(watermark, self.now)
        if self.now != MAX_WATERMARK:
            self.before_end = self.now
        self._ahead = tuple(ahead for ahead in self._ahead if ahead[2] > self.before_end)
        self._gone = tuple(ahead for ahead in self._gone if ahead[2] + self._lateness_ms > self.before_end)
        self._reached, self._kept = self._by_group()

    def come_to(self, watermark: int, groups: range) -> None:
        """Advances only some key groups to `watermark`; `advance` follows when all have reached it.

        Not for the end of the input, which a snapshot does not contain.
        """
        times = np.full(self._max_parallelism, self.now)
        for first, behind, time in self._ahead:
            times[first:behind] = np.maximum(times[first:behind], time)
        times[groups.start : groups.stop] = np.maximum(times[groups.start : groups.stop], watermark)
        self._ahead = self._runs(times, times > self.now)
        self._reached, self._kept = self._by_group()

    def restore(self, pieces: Iterable[About]) -> None:
        """Restores the least of several watermarks; the key groups of later ones are ahead."""
        found = list(pieces)
        self.now = self.before_end = (
            min(piece.watermark for piece in found) if are_whole(found, self._owned) else MIN_WATERMARK
        )
        groups = np.full(self._max_parallelism, self.now)
        for piece in found:
            for first, behind, ahead in ((piece.owned.start, piece.owned.stop, piece.watermark), *piece.ahead):
                groups[first:behind] = np.maximum(groups[first:behind], ahead)
        self._ahead = self._runs(groups, groups > self.now)
        gone = np.full(self._max_parallelism, MIN_WATERMARK)
        for first, behind, time in (ahead for piece in found for ahead in piece.gone):
            gone[first:behind] = np.maximum(gone[first:behind], time)
        self._gone = self._runs(gone, (gone > MIN_WATERMARK) & (gone + self._lateness_ms > groups))
        self._reached, self._kept = self._by_group()

    def _runs(self, times: Array, counts: Array) -> tuple[Ahead, ...]:
        """Runs of this subtask's key groups with equal times, of those that count."""
        found = groupby(self._owned, key=lambda group: int(times[group]) if counts[group] else None)
        runs = [(time, list(run)) for time, run in found if time is not None]
        return tuple((run[0], run[-1] + 1, time) for time, run in runs)

    def _by_group(self) -> tuple[Reached, Reached]:
        reached = self._at_least(Reached(self.now), self._ahead)
        gone = [(first, behind, time + self._lateness_ms) for first, behind, time in self._gone]
        return reached, self._at_least(reached, gone)

    def _at_least(self, reached: Reached, further: Sequence[Ahead]) -> Reached:
        """The event times raised for key groups that are further on, if any."""
        if all(time <= self.now for _, _, time in further):
            return reached
        groups = np.full(self._max_parallelism, self.now) if reached.groups is None else reached.groups.copy()
        for first, behind, time in further:
            groups[first:behind] = np.maximum(groups[first:behind], time)
        return Reached(self.now, groups)
