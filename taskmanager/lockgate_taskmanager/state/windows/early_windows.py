"""Windows that also fire early by the clock: at every multiple of a pause, those that have new records."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.store import Fires, Merged, ProcessingTimeStore
from lockgate_taskmanager.state.windows.clocked_windows import ClockedWindows


class NewRecords(Protocol):
    """Windows that knows which of its windows have new records."""

    @property
    def has_new(self) -> bool:
        """Whether some window may have records that are in no result yet."""
        ...

    def fire_new(self) -> pa.Table:
        """The first portion of the early results of the windows with new records."""
        ...


class EarlyWindows(ClockedWindows[Fires]):
    """A ProcessingTimeStore over windows of event time or processing time. Used from the subtask's own thread."""

    def __init__(self, every_ms: int, windows: Fires, new: NewRecords) -> None:
        """windows: new or restored; new: those of them with new records."""
        super().__init__(windows)
        self._every_ms, self._records = every_ms, new
        self._by_clock = windows if isinstance(windows, ProcessingTimeStore) else None
        self._unix_ms = 0
        self._next_ms = NEVER  # the firing of what is new
        self._has_waited = False  # early results that are due, for windows that ended

    def merge(self, partial: pa.Table) -> Merged:
        merged = self._windows.merge(partial.select(self.partial_schema.names))  # a restored store has its own order
        self._plan()
        return merged

    def tick(self, unix_ms: int) -> pa.Table | None:
        """The results of windows that have ended by the clock, else the early results that are due, or None.

        A clock that was set back makes no pause longer than one of its own. Raises DataError on overflow.
        """
        self._unix_ms = unix_ms
        is_due = self._records.has_new and unix_ms >= self._next_ms
        if self._by_clock is not None and not (is_due and self._has_waited):
            ended = self._by_clock.tick(unix_ms)
            if ended is not None:
                self._has_waited = is_due  # until the next tick, for which `wakes_at` asks
                return ended
            is_due = is_due and self._records.has_new
        if is_due:
            self._next_ms, self._has_waited = NEVER, False
            return self._records.fire_new()
        self._plan()
        return None

    def wakes_at(self) -> int | None:
        ends = None if self._by_clock is None else self._by_clock.wakes_at()
        if not self._records.has_new:
            return ends
        early = self._unix_ms if self._next_ms == NEVER else self._next_ms  # NEVER: restored, and no tick yet
        return early if ends is None else min(early, ends)

    def advance(self, watermark_ms: int) -> pa.Table:
        return self._windows.advance(watermark_ms)

    def go_on(self) -> pa.Table:
        return self._windows.go_on()

    def _plan(self) -> None:
        if self._records.has_new:
            self._next_ms = min(self._next_ms, self._unix_ms - self._unix_ms % self._every_ms + self._every_ms)
