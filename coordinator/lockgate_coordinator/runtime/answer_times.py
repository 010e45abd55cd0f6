"""How late the leader has sent and answered until now, and thus how long its silence may last. Pure.

A frozen process and a slow one look alike for a while. The slow one has been late before: it gets several times as long
as it has ever taken lately.
"""

from __future__ import annotations

from collections import deque

_LEAST_MS, _MOST_MS = 1_000, 10_000
_TIMES = 3
_REMEMBERED = 60
"""Heartbeats and answers: half a minute at the default interval."""


class AnswerTimes:
    """Of one leader, as one standby sees it."""

    def __init__(self) -> None:
        self._token = 0
        self._late_ms: deque[int] = deque(maxlen=_REMEMBERED)

    def noted(self, token: int, late_ms: int) -> None:
        """The leader of `token` has sent something, this long after it was due. Others before it do not matter."""
        if token != self._token:
            self._token = token
            self._late_ms.clear()
        self._late_ms.append(late_ms)

    def patience_ms(self, token: int) -> int:
        """How long the leader of `token` may leave a question unanswered before it counts as frozen."""
        worst_ms = max(self._late_ms, default=0) if token == self._token else 0
        return min(max(_LEAST_MS, _TIMES * worst_ms), _MOST_MS)
