"""The two clocks. Decisions get the monotonic one as an argument; the wall clock is for display and for event time."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Monotonic milliseconds: for pauses and deadlines."""
    return time.monotonic_ns() // 1_000_000


def unix_ms() -> int:
    """Wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def unix_us() -> int:
    """Wall clock in microseconds since 1970."""
    return time.time_ns() // 1_000
