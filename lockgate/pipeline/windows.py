"""Windows for `KeyedStream.window`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from lockgate_proto.messages import (
    CumulatingWindow,
    EarlyFiringWindow,
    SessionWindow,
    SlidingWindow,
    TriggeredWindow,
    TumblingWindow,
    Window,
)

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError

Duration = str | int


@dataclass(frozen=True, slots=True)
class WindowExpression:
    """A definition of windows."""

    kind: TumblingWindow | SlidingWindow | CumulatingWindow | SessionWindow


class TimeWindow(Protocol):
    """The window that a function of windows is called for."""

    @property
    def start(self) -> datetime:
        """Its first moment, in UTC."""
        ...

    @property
    def end(self) -> datetime:
        """The first moment behind it, in UTC."""
        ...

    @property
    def start_ms(self) -> int:
        """The same in milliseconds since 1970."""
        ...

    @property
    def end_ms(self) -> int:
        """The same in milliseconds since 1970."""
        ...


def tumbling(size: Duration, *, offset: Duration = 0) -> WindowExpression:
    """Consecutive windows of one size: `tumbling("5 seconds")`.

    size: text such as "5 seconds", or milliseconds; offset: shifts them; by default days begin at midnight UTC.
    """
    size_ms = checks.duration("tumbling", "size", size, 1)
    return WindowExpression(TumblingWindow(size_ms, _offset("tumbling", offset, size_ms)))


def sliding(size: Duration, every: Duration, *, offset: Duration = 0) -> WindowExpression:
    """Overlapping windows of one size, with a new one `every`: `sliding("5 seconds", "1 second")`.

    A record is in size / every windows. Times are given as for `tumbling`.
    """
    size_ms = checks.duration("sliding", "size", size, 1)
    slide_ms = checks.duration("sliding", "every", every, 1)
    if slide_ms > size_ms:
        raise PipelineError(
            f"sliding({size!r}, {every!r}) leaves gaps between the windows; every must not exceed the size"
        )
    return WindowExpression(SlidingWindow(size_ms, slide_ms, _offset("sliding", offset, slide_ms)))


def cumulating(size: Duration, step: Duration, *, offset: Duration = 0) -> WindowExpression:
    """Windows that grow by `step` until they are `size` long: `cumulating("1 day", "1 hour")`.

    The first hour, the first two hours, and so on to the whole day; then the next day begins. The size is a multiple of
    the step, 1,500 times at most: each key has a row for every step. Times are given as for `tumbling`.
    """
    size_ms = checks.duration("cumulating", "size", size, 1)
    step_ms = checks.duration("cumulating", "step", step, 1)
    if size_ms % step_ms:
        raise PipelineError(f"cumulating({size!r}, {step!r}): the size must be a multiple of the step")
    return WindowExpression(CumulatingWindow(size_ms, step_ms, _offset("cumulating", offset, size_ms)))


def session(gap: Duration) -> WindowExpression:
    """Windows that end when a key has been inactive: records at most `gap` apart are in the same window.

    A window lasts from its first record to `gap` after the last. Times are given as for `tumbling`.
    """
    return WindowExpression(SessionWindow(checks.duration("session", "gap", gap, 1)))


def triggered(window: Window, every_count: Any, every: Any, purge: Any) -> Window:
    """Windows that also fire early. Raises PipelineError."""
    kind = window.kind
    if is_triggered(window):
        raise PipelineError("trigger() is given once: trigger(every_count=1000, every='10 seconds') fires on either")
    if isinstance(kind, SessionWindow):
        raise PipelineError(
            "trigger() is not for session windows, because a record may join two of them whose early results are out: "
            "use tumbling(...), sliding(...) or cumulating(...), or leave trigger() out"
        )
    if every_count is None and every is None:
        raise PipelineError("trigger() would never fire: give it every_count=1000, every='10 seconds', or both")
    if not isinstance(purge, bool):
        raise PipelineError(f"trigger(): purge must be True or False, not {purge!r}")
    if purge and window.allowed_lateness_ms:
        raise PipelineError(
            "trigger(purge=True) keeps no result that a late record could change, so leave allowed_lateness= out of "
            "window()"
        )
    count = 0 if every_count is None else checks.whole("trigger()", "every_count", every_count, 1)
    every_ms = 0 if every is None else checks.duration("trigger", "every", every, 1)
    return replace(window, kind=_early(kind, window.processing_time, (count, every_ms, purge)))


def is_triggered(window: Window | None) -> bool:
    """Whether windows also fire early."""
    return window is not None and isinstance(window.kind, TriggeredWindow | EarlyFiringWindow)


def _early(kind: Any, by_clock: bool, trigger: tuple[int, int, bool]) -> TriggeredWindow | EarlyFiringWindow:
    """Windows with a trigger. kind: of the windows; trigger: every_count, every_ms and purge."""
    if isinstance(kind, TumblingWindow) and not by_clock:
        return TriggeredWindow(kind.size_ms, kind.offset_ms, *trigger)  # which earlier task managers know, too
    if isinstance(kind, TumblingWindow):
        return EarlyFiringWindow(kind.size_ms, kind.size_ms, kind.offset_ms, False, *trigger)
    if isinstance(kind, SlidingWindow):
        return EarlyFiringWindow(kind.size_ms, kind.slide_ms, kind.offset_ms, False, *trigger)
    return EarlyFiringWindow(kind.size_ms, kind.step_ms, kind.offset_ms, True, *trigger)


def _offset(method: str, offset: Duration, period_ms: int) -> int:
    offset_ms = checks.duration(method, "offset", offset, 0)
    if offset_ms >= period_ms:
        raise PipelineError(f"{method}: an offset of {offset!r} must be less than the time between two windows")
    return offset_ms
