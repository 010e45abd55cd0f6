"""Windows of event time for `KeyedStream.window`."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import SessionWindow, SlidingWindow, TumblingWindow

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError

Duration = str | int


@dataclass(frozen=True, slots=True)
class WindowExpression:
    """A definition of windows."""

    kind: TumblingWindow | SlidingWindow | SessionWindow


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


def session(gap: Duration) -> WindowExpression:
    """Windows that end when a key has been inactive: records at most `gap` apart are in the same window.

    A window lasts from its first record to `gap` after the last. Times are given as for `tumbling`.
    """
    return WindowExpression(SessionWindow(checks.duration("session", "gap", gap, 1)))


def _offset(method: str, offset: Duration, period_ms: int) -> int:
    offset_ms = checks.duration(method, "offset", offset, 0)
    if offset_ms >= period_ms:
        raise PipelineError(f"{method}: an offset of {offset!r} must be less than the time between two windows")
    return offset_ms
