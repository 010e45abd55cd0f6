"""The wall clock, which timers of process functions go by. Milliseconds since 1970."""

from __future__ import annotations

import time

LONGEST_WAIT_S = 60.0  # the clock may be set meanwhile


def unix_ms() -> int:
    """Now."""
    return time.time_ns() // 1_000_000


def wait_until(wakes_at: int | None, longest_s: float | None) -> float | None:
    """Seconds to wait for something else, but no longer than until `wakes_at`. None: for ever."""
    if wakes_at is None:
        return longest_s
    rest_s = min(max(0.0, (wakes_at - unix_ms()) / 1000), LONGEST_WAIT_S)
    return rest_s if longest_s is None else min(rest_s, longest_s)
