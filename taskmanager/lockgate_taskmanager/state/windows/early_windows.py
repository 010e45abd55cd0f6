"""Windows that also fire early by the clock: at every multiple of a pause, those that have new records."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.store import Fires, FrozenStore, Merged
from lockgate_taskmanager.task.program import SnapshotOrder, UserError


class NewRecords(Fires, Protocol):
    """A store that knows which of its windows have new records."""

    @property
    def has_new(self) -> bool:
        """Whether some window may have records that are in no result yet."""
        ...

    def fire_new(self) -> pa.Table:
        """The first portion of the early results of the windows with new records."""
        ...


class EarlyWindows:
    """A ProcessingTimeStore over windows of event time. Used from the subtask's own thread."""

    def __init__(self, every_ms: int, windows: NewRecords) -> None:
        """windows: new or restored."""
        self._every_ms, self._windows = every_ms, windows
        self._unix_ms = 0
        self._next_ms = NEVER  # the firing of what is new

    @property
    def schema(self) -> pa.Schema:
        return self._windows.schema

    @property
    def partial_schema(self) -> pa.Schema:
        return self._windows.partial_schema

    def set_input_schema(self, schema: pa.Schema) -> None:
        """Raises UserError for columns or types that differ from those of the stored state."""
        stored, given = ({field.name: field.type for field in item} for item in (self.partial_schema, schema))
        if list(stored.items()) != list(given.items()):
            names = (", ".join(f"{name} {kind}" for name, kind in columns.items()) for columns in (stored, given))
            raise UserError(
                "the stored windows have the columns ({}), the input now has ({}): give it the same columns and types "
                "with SELECT and CAST".format(*names)
            )

    def merge(self, partial: pa.Table) -> Merged:
        merged = self._windows.merge(partial)
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

    @property
    def has_more(self) -> bool:
        return self._windows.has_more

    @property
    def is_settled(self) -> bool:
        return self._windows.is_settled

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        return self._windows.snapshot(order)

    def warm_up(self) -> None:
        """There is no Spark job."""

    def close(self) -> None:
        self._windows.close()

    def _plan(self) -> None:
        if self._windows.has_new:
            self._next_ms = min(self._next_ms, self._unix_ms - self._unix_ms % self._every_ms + self._every_ms)
