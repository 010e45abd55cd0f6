"""Backoff for reading a snapshot while its storage is unavailable."""

from __future__ import annotations

FIRST_MS = 1_000
LONGEST_MS = 30_000


class Backoff:
    """Doubles from FIRST_MS to LONGEST_MS."""

    def __init__(self, first_ms: int = 0) -> None:
        """first_ms: instead of FIRST_MS."""
        self._first_ms = first_ms or FIRST_MS
        self._failures = 0
        self._at_ms: int | None = None

    def failed(self, now_ms: int) -> int:
        """An attempt to read has failed; returns the pause in ms."""
        pause_ms = min(self._first_ms << min(self._failures, 10), LONGEST_MS)
        self._failures += 1
        self._at_ms = now_ms + pause_ms
        return pause_ms

    def take_due(self, now_ms: int) -> bool:
        """True once, when the pause is over."""
        if self._at_ms is None or now_ms < self._at_ms:
            return False
        self._at_ms = None
        return True

    def next_wake_ms(self) -> int | None:
        """When the pause is over, None when there is none."""
        return self._at_ms
