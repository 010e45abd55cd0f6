"""Windows that also fire early by the clock: at every multiple of a pause, those that have new records."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.store import Fires, Merged
from lockgate_taskmanager.state.windows.clocked_windows import ClockedWindows


class NewRecords(Fires, Protocol):
    """A store that knows which of its windows have new records."""

    @property
    def has_new(self) -> bool:
        """Whether some window may have records that are in no result yet."""
        ...

    def fire_new(self) -> pa.Table:
        """The first portion of the early results of the windows with new records."""
        ...


class EarlyWindows(ClockedWindows[NewRecords]):
    """A ProcessingTimeStore over windows of event time. Used from the subtask's own thread."""

    def __init__(self, every_ms: int, windows: NewRecords) -> None:
        """windows: new or restored."""
        super().__init__(windows)
        self._every_ms = every_ms
        self._unix_ms = 0
        self._next_ms = NEVER  # the firing of what is new

    def merge(self, partial: pa.Table) -> Merged:
        merged = self._windows.merge(partial.select(self.partial_schema.names))  # a restored store has its own order
        self._plan()
        return merged

    def tick(self, unix_ms: int) -> pa.Table | None:
        """The early results that are due, or None. A clock that was set back makes no pause longer than one of its own.

        Raises DataError on overflow.
        """
        self._unix_ms = unix_ms
        if self._windows.has_new and unix_ms >= self._next_ms:
            self._next_ms = NEVER
            return self._windows.fire_new()
        self._plan()
        return None

    def wakes_at(self) -> int | None:
        if not self._windows.has_new:
            return None
        return self._unix_ms if self._next_ms == NEVER else self._next_ms  # NEVER: restored, and no tick yet

    def advance(self, watermark_ms: int) -> pa.Table:
        return self._windows.advance(watermark_ms)

    def go_on(self) -> pa.Table:
        return self._windows.go_on()

    def _plan(self) -> None:
        if self._windows.has_new:
            self._next_ms = min(self._next_ms, self._unix_ms - self._unix_ms % self._every_ms + self._every_ms)
