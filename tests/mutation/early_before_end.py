"""Pauses of a trigger come before the ends of windows by the clock that are due at the same moment."""

from __future__ import annotations

import pyarrow as pa
from lockgate_taskmanager.state.windows.early_windows import EarlyWindows

_tick = EarlyWindows.tick


def _early_first(windows: EarlyWindows, unix_ms: int) -> pa.Table | None:
    by_clock, windows._by_clock = windows._by_clock, None
    early = _tick(windows, unix_ms)
    windows._by_clock = by_clock
    return _tick(windows, unix_ms) if early is None else early


EarlyWindows.tick = _early_first  # type: ignore[method-assign, assignment]
