"""The highest fencing token that this process has seen."""

from __future__ import annotations

import threading


class TokenFence:
    """Thread safe. A message with a token below the highest seen comes from a leader that has been replaced."""

    def __init__(self, highest: int = 0) -> None:
        self._highest = highest
        self.refused = 0
        """Messages with a lower token so far."""
        self._lock = threading.Lock()

    @property
    def highest(self) -> int:
        """The highest token seen so far; 0 before the first."""
        return self._highest

    def admits(self, token: int) -> bool:
        """Whether a peer may present this token. It is not remembered: only a leader may raise the highest token seen.

        Otherwise one channel with the largest possible token would shut out every leader for the lifetime of this
        process.
        """
        return token >= self._highest

    def observe(self, token: int) -> bool:
        """Records a token. False when a higher one was seen before: refuse the message that carried it."""
        with self._lock:
            if token < self._highest:
                self.refused += 1
                return False
            self._highest = token
            return True
