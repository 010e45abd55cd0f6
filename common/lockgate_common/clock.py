"""The two clocks. Decisions get the monotonic one as an argument; the wall clock is for display and for event time.

A drill can set the wall clock off, as it may be on a real machine: see `fault_points`. The monotonic one is never off.
"""

from __future__ import annotations

import time

from lockgate_common.fault_points import clock_offset_s


def monotonic_ms() -> int:
    """Monotonic milliseconds: for pauses and deadlines."""
    return time.monotonic_ns() // 1_000_000


def unix_ns() -> int:
    """Wall clock in nanoseconds since 1970."""
    return time.time_ns() + clock_offset_s() * 1_000_000_000


def unix_us() -> int:
    """Wall clock in microseconds since 1970."""
    return unix_ns() // 1_000


def unix_ms() -> int:
    """Wall clock in milliseconds since 1970."""
    return unix_ns() // 1_000_000
