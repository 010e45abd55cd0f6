"""When the next periodic checkpoint is due."""

from __future__ import annotations

_RETRY_MS = 1_000


class Schedule:
    """Of one job: an interval from one beginning to the next, and a pause after each end."""

    def __init__(self, interval_ms: int, min_pause_ms: int) -> None:
        self._interval_ms = interval_ms
        self._min_pause_ms = min_pause_ms
        self._due_ms = 0
        self._not_before_ms = 0

    @property
    def next_ms(self) -> int:
        """When the next one may begin."""
        return max(self._due_ms, self._not_before_ms)

    def started(self, now_ms: int) -> None:
        """An attempt runs: its first checkpoint is due after an interval."""
        self._due_ms, self._not_before_ms = now_ms + self._interval_ms, now_ms

    def hurry(self, now_ms: int) -> None:
        """The next one is due now."""
        self._due_ms = self._not_before_ms = now_ms

    def begun(self, now_ms: int) -> None:
        """The due one has begun, however late; missed ones are not caught up on."""
        self._due_ms += ((now_ms - self._due_ms) // self._interval_ms + 1) * self._interval_ms

    def ended(self, now_ms: int) -> None:
        """One was completed or aborted."""
        self._not_before_ms = max(self._not_before_ms, now_ms + self._min_pause_ms)

    def not_begun(self, now_ms: int) -> None:
        """The id of the next one could not be written."""
        self._not_before_ms = now_ms + _RETRY_MS
