"""Which windows a moment lies in. Pure arithmetic on milliseconds since 1970, for integers and numpy arrays alike.

Windows are [start, end). Records are aggregated by *pane*: the greatest common divisor of size and slide, so that a
window consists of whole panes and a record is kept once, however many windows it is in. A tumbling window is one pane.
Cumulating windows of a period all start with it, and end one slide after the other.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lockgate_proto.messages import (
    CumulatingWindow,
    EarlyFiringWindow,
    SessionWindow,
    SlidingWindow,
    TriggeredWindow,
    TumblingWindow,
    Window,
)

from lockgate_taskmanager.task.program import UserError
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

Times = Any  # int, or a numpy array of int64


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Windows of `size_ms`, one ending every `slide_ms` from `offset_ms` on; lateness_ms: kept after the end.

    is_cumulating: all windows of a period of `size_ms` start with the period; `size_ms` is a multiple of `slide_ms`.
    whole: the windows, where this is the shape of rows of which each window has its own, see `rows_shape_of`.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int
    lateness_ms: int
    is_cumulating: bool = False
    whole: WindowShape | None = None

    @property
    def period_ms(self) -> int:
        """From the start of a window to the next start of another."""
        return self.size_ms if self.is_cumulating else self.slide_ms

    @property
    def pane_ms(self) -> int:
        """Length of a pane."""
        return math.gcd(self.size_ms, self.slide_ms)

    @property
    def extent_ms(self) -> int:
        """No bound of a window is further from a time inside it, and no state is kept for longer after it."""
        return self.size_ms + self.slide_ms + abs(self.offset_ms) + self.lateness_ms

    def last_end(self, pane: Times) -> Times:
        """End of the last window that holds the pane starting at `pane`."""
        return pane - (pane - self.offset_ms) % self.period_ms + self.size_ms

    def start(self, end: Times) -> Times:
        """Start of the window that ends at `end`."""
        if not self.is_cumulating:
            return end - self.size_ms
        return end - 1 - (end - 1 - self.offset_ms) % self.size_ms

    def opening(self, end: Times) -> Times:
        """Start of the window that ends at `end`, as results have it."""
        return self.start(end) if self.whole is None else self.whole.start(end)

    def ends(self, pane: int) -> range:
        """Ends of all windows that hold the pane, first to last."""
        last = self.last_end(pane)
        first = last - (last - 1 - pane) // self.slide_ms * self.slide_ms
        # windows that end at or before the pane's start do not hold it
        return range(first, last + 1, self.slide_ms)

    def due(self, panes: Sequence[int], before: int, now: int) -> list[int]:
        """Ends of the windows that hold one of these panes and fire as event time goes from `before` to `now`.

        panes: in order. Cost grows with the due windows only.
        """
        found: list[int] = []
        end = self.next_due(panes, before)
        while end is not None and end <= now + 1:
            found.append(end)
            end = self.next_due(panes, end - 1)
        return found

    def next_due(self, panes: Sequence[int], before: int) -> int | None:
        """The end of the first window that holds one of these panes and fires after event time `before`.

        panes: in order. None: there is no such window.
        """
        end = self.end_after(before + 1)
        while (at := bisect.bisect_left(panes, self.start(end))) < len(panes):
            if panes[at] < end:
                return end
            end = self.end_after(panes[at])  # no window that ends before holds a pane
        return None

    def end_after(self, time_ms: int) -> int:
        """The first end of a window after `time_ms`."""
        return time_ms + 1 + (self.offset_ms + self.size_ms - time_ms - 1) % self.slide_ms

    def is_over(self, end: Times, watermark: Times) -> Times:
        """True when event time has passed the window: it has fired."""
        return end <= watermark + 1

    def kept_ends(self, pane: Times, watermark: Times, kept: Times | None = None) -> tuple[Times, Times]:
        """Ends of the first and the last window with the pane that has fired and may still change; first > last: none.

        kept: the watermark that decides what was dropped, if it differs from the one that decides what has fired.
        Durations and times are as far from the ends of a 64-bit integer as graphs and calendars allow.
        """
        passed, passed_for_good = (
            np.clip(time, MIN_WATERMARK // 2, MAX_WATERMARK // 2) + 1
            for time in (watermark, watermark if kept is None else kept)
        )
        last = self.last_end(pane)
        first = last - (last - 1 - pane) // self.slide_ms * self.slide_ms
        not_yet = np.maximum(-((passed - last) // self.slide_ms), 0)  # windows of the pane that have not fired
        no_more = np.maximum((passed_for_good - self.lateness_ms - first) // self.slide_ms + 1, 0)  # that are gone
        return first + no_more * self.slide_ms, last - not_yet * self.slide_ms

    def is_expired(self, pane: Times, watermark: Times) -> Times:
        """True when no window with this pane can fire any more: its records come too late."""
        return self.last_end(pane) + self.lateness_ms <= watermark + 1

    def expired_until(self, watermark: int) -> int:
        """The latest start of an expired pane: all panes up to it are expired, all later ones are not."""
        return self.fired_until(watermark - self.lateness_ms)

    def fired_until(self, watermark: int) -> int:
        """The same for panes whose windows have all fired, kept or not."""
        periods = (watermark + 1 - self.size_ms - self.offset_ms) // self.period_ms  # that are over since the offset
        return clamped(self.offset_ms + (periods + 1) * self.period_ms - 1)


def clamped(time_ms: int) -> int:
    """The time clamped to a 64-bit integer: arithmetic on the minimum and maximum watermark leaves that range."""
    return min(max(time_ms, MIN_WATERMARK), MAX_WATERMARK)


def shape_of(window: Window) -> WindowShape:
    """The shape of tumbling, sliding and cumulating windows, and the panes of sessions.

    Raises UserError for an unknown kind.
    """
    kind = window.kind
    if isinstance(kind, TumblingWindow | TriggeredWindow):
        return WindowShape(kind.size_ms, kind.size_ms, kind.offset_ms, window.allowed_lateness_ms)
    if isinstance(kind, EarlyFiringWindow):
        return WindowShape(kind.size_ms, kind.slide_ms, kind.offset_ms, window.allowed_lateness_ms, kind.is_cumulating)
    if isinstance(kind, SlidingWindow):
        return WindowShape(kind.size_ms, kind.slide_ms, kind.offset_ms, window.allowed_lateness_ms)
    if isinstance(kind, CumulatingWindow):
        return WindowShape(kind.size_ms, kind.step_ms, kind.offset_ms, window.allowed_lateness_ms, is_cumulating=True)
    if isinstance(kind, SessionWindow):
        return WindowShape(kind.gap_ms, kind.gap_ms, 0, window.allowed_lateness_ms)
    raise UserError("the window is of a kind that this task manager does not know; update it")


def rows_shape_of(window: Window) -> WindowShape:
    """The shape of the rows that state keeps: those of panes or, with a trigger, a row for each key and window.

    A window fires early by its own records, and others of its panes do not. Its row is filed under its last `slide_ms`,
    which is the last of no other window, as if that were a tumbling window.
    """
    shape = shape_of(window)
    if not isinstance(window.kind, TriggeredWindow | EarlyFiringWindow):
        return shape
    offset_ms = (shape.offset_ms + shape.size_ms) % shape.slide_ms
    return WindowShape(shape.slide_ms, shape.slide_ms, offset_ms, shape.lateness_ms, whole=shape)
