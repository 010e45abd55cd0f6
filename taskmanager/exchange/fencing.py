"""The highest fencing token that this process has seen."""

from __future__ import annotations

import threading


class TokenFence:
    """Thread safe. A message with a token below the highest seen comes from a leader that has been replaced."""

    def __init__(self, highest: int = 0) -> None:
        self._highest = highest
        self._lock = threading.Lock()

    @property
    def highest(self) -> int:
        """The highest token seen so far; 0 before the first."""
        return self._highest

    def admits(self, token: int) -> bool:
        """Whether a peer may show this token. Not remembered: only a leader's own word says that there is a later one.

        One channel that names the last token of all would otherwise shut out every leader for as long as this process
        lives.
        """
        return token >= self._highest

    def observe(self, token: int) -> bool:
        """Remembers a token. False when a higher one was seen before: refuse what came with this one."""
        with self._lock:
            if token < self._highest:
                return False
            self._highest = token
            return True
