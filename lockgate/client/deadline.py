"""A deadline on the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Deadline:
    """Counts down from `after_ms` on the monotonic clock; None never expires."""

    def __init__(self, after_ms: float | None) -> None:
        self._end = None if after_ms is None else time.monotonic() + after_ms / 1000

    @property
    def expired(self) -> bool:
        """True once the deadline has passed."""
        return self._end is not None and time.monotonic() >= self._end

    def remaining_s(self, at_most_s: float) -> float:
        """Seconds left, but never more than `at_most_s` nor less than 0."""
        left = at_most_s if self._end is None else self._end - time.monotonic()
        return max(0.0, min(left, at_most_s))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """What the block takes does not count."""
        begun = time.monotonic()
        try:
            yield
        finally:
            if self._end is not None:
                self._end += time.monotonic() - begun
