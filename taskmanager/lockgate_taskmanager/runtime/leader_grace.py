"""For how long subtasks run on without a leader.

led --stream lost--> alone --registered again--> led
                       +----grace over--> over, reported once, until a leader registers this task manager again
"""

from __future__ import annotations

LONGEST_STEP_MS = 5_000
"""The most that counts between two looks: a process that was stopped has not been without a leader for that long."""


class LeaderGrace:
    """Pure. To be asked with each heartbeat."""

    def __init__(self, grace_ms: int) -> None:
        """grace_ms: 0 for no limit."""
        self._grace_ms = grace_ms
        self._looked_ms: int | None = None
        self._alone_ms = 0

    def is_over(self, is_registered: bool, now_ms: int) -> bool:
        """True once after each loss of a leader, when the grace has passed. is_registered: with a leader, now."""
        step_ms = min(LONGEST_STEP_MS, now_ms - self._looked_ms) if self._looked_ms is not None else 0
        self._looked_ms = now_ms
        before_ms, self._alone_ms = self._alone_ms, 0 if is_registered else self._alone_ms + step_ms
        return before_ms < self._grace_ms <= self._alone_ms
