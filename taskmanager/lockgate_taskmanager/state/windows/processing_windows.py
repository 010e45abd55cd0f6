"""Windows of processing time: a windowed store whose event time is the subtask's clock.

Records and partials come without a time. All rows of a batch get the same one, the processing time at which they are
merged, so the window of a record is decided by the subtask that keeps it, and no record is late. Watermarks have no
effect; the end of the input fires every window.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import KeyedAggregate, SessionWindow, Window

from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.late_clock import LateClock
from lockgate_taskmanager.state.layout import HASH, PANE, parts, with_bounds
from lockgate_taskmanager.state.processing_clock import ProcessingClock
from lockgate_taskmanager.state.store import Fires, Merged
from lockgate_taskmanager.state.windows.clocked_windows import ClockedWindows
from lockgate_taskmanager.state.windows.shape import shape_of
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK


class TimedWindows(Fires, Protocol):
    """A windowed store in memory or in a database."""

    clock: EventClock

    def next_due_ms(self) -> int:
        """No window ends before this; NEVER when there is none."""
        ...


class ProcessingWindows(ClockedWindows[TimedWindows]):
    """A ProcessingTimeStore over a windowed store. Used from the subtask's own thread."""

    def __init__(self, window: Window, added: Iterable[str], windows: TimedWindows, late_clock: LateClock) -> None:
        """windows: new or restored; added: columns of its partial schema that the input lacks, times in milliseconds.

        late_clock: is given after each tick how far the clock is behind.
        """
        super().__init__(windows)
        self._late_clock = late_clock
        self._shape = shape_of(window)
        self._is_session = isinstance(window.kind, SessionWindow)
        self._added = frozenset(added)
        ahead = (time for _, _, time in windows.clock.ahead)
        # a restored subtask must not come back to a window that has ended in one of its key groups
        self._time = ProcessingClock(max(windows.clock.before_end, *ahead, -1) + 1)
        self._next_ms = windows.next_due_ms()

    @property
    def partial_schema(self) -> pa.Schema:
        """Without the columns that `merge` adds."""
        return pa.schema([field for field in self._windows.partial_schema if field.name not in self._added])

    def merge(self, partial: pa.Table) -> Merged:
        """Puts the rows of a table into the windows of the current processing time."""
        now_ms = self._time.now_ms
        pane = now_ms - (now_ms - self._shape.offset_ms) % self._shape.pane_ms
        count = partial.num_rows
        columns = [
            pa.repeat(pa.scalar(pane if name == PANE else now_ms, pa.int64()), count)
            if name in self._added
            else partial.column(name)
            for name in self._windows.partial_schema.names
        ]
        if count:
            end = now_ms + self._shape.size_ms if self._is_session else self._shape.end_after(now_ms)
            self._next_ms = min(self._next_ms, end)
        return self._windows.merge(pa.Table.from_arrays(columns, schema=self._windows.partial_schema))

    def tick(self, unix_ms: int) -> pa.Table | None:
        """The results of the windows that have ended, or None. Raises DataError on overflow."""
        now_ms = self._time.tick(unix_ms)
        self._late_clock.note(self._time.ahead_ms)
        if now_ms < self._next_ms:
            return None
        return self._noting_next(self._windows.advance(now_ms - 1))

    def wakes_at(self) -> int | None:
        return None if self._next_ms == NEVER else self._time.unix_of(self._next_ms)

    def advance(self, watermark_ms: int) -> pa.Table:
        """Fires every window at the end of the input; otherwise nothing."""
        if watermark_ms != MAX_WATERMARK:
            return self.schema.empty_table()
        return self._noting_next(self._windows.advance(watermark_ms))

    def go_on(self) -> pa.Table:
        return self._noting_next(self._windows.go_on())

    def _noting_next(self, fired: pa.Table) -> pa.Table:
        if not self._windows.has_more:
            self._next_ms = self._windows.next_due_ms()
        return fired


def times_of(aggregation: KeyedAggregate) -> tuple[str, ...]:
    """The columns of a partial with times: its pane, and the first and last time of a session."""
    if aggregation.window is None or not isinstance(aggregation.window.kind, SessionWindow):
        return (PANE,)
    return (PANE, *(part.column for part in parts(with_bounds(aggregation))[-2:]))


def timed_schema(aggregation: KeyedAggregate, schema: pa.Schema) -> pa.Schema:
    """The schema of partials without a time, as windowed stores have it."""
    pane, *bounds = (pa.field(name, pa.int64()) for name in times_of(aggregation))
    return pa.schema([*schema.insert(schema.get_field_index(HASH) + 1, pane), *bounds])
