"""The processing time of one subtask: the wall clock, but never earlier than before.

Clocks are set back, and restored windows may come from a task manager whose clock was ahead. Then processing time runs
at half the speed of the clock until the clock has caught up: windows still end, and none ends
twice; timers still fire.
"""

from __future__ import annotations


class ProcessingClock:
    """Milliseconds since 1970, which only rise."""

    def __init__(self, least_ms: int = 0) -> None:
        """least_ms: the time to start from, if the wall clock is behind it."""
        self.now_ms = least_ms
        self._unix_ms: int | None = None  # at the last tick
        self._slow_from = (0, least_ms)  # wall clock and processing time at the last step back

    def tick(self, unix_ms: int) -> int:
        """Sets the wall clock. Returns the processing time."""
        if self._unix_ms is None or unix_ms < self._unix_ms:
            self._slow_from = (unix_ms, self.now_ms)
        self._unix_ms = unix_ms
        since, was = self._slow_from
        self.now_ms = max(self.now_ms, unix_ms, was + (unix_ms - since) // 2)
        return self.now_ms

    @property
    def ahead_ms(self) -> int:
        """By how much processing time is ahead of the wall clock of the last tick."""
        return 0 if self._unix_ms is None else self.now_ms - self._unix_ms

    def unix_of(self, time_ms: int) -> int:
        """The wall clock at which processing time reaches `time_ms`, unless the clock is set back before that."""
        since, was = self._slow_from
        return min(time_ms, since + 2 * (time_ms - was))
