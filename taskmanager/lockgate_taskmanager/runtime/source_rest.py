"""Sources rest for a moment after their leader was lost, if the next leader restarts their job.

reading --leader lost--> resting --the same leader is back, or REST_S--> reading

What they read meanwhile would be thrown away, and would take processor time from the takeover.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lockgate_taskmanager.task.program import Idle

REST_S = 1.0
"""A takeover takes a fraction of it. A leader that is away for longer may come back itself: then reading counts."""
_LOOK_MS = 20


class SourceRest:
    """Of one task manager. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: in seconds."""
        self._clock = clock
        self._until_s = clock()
        self._token = 0  # of the leader that was lost

    def begin(self, token: int) -> None:
        """The leader with this token is lost."""
        self._token, self._until_s = token, self._clock() + REST_S

    def registered(self, token: int) -> None:
        """A leader is there. If it is the next one, it deploys the job again, and what it deploys does not rest."""
        if token == self._token:
            self._until_s = self._clock()

    def pause(self, token: int) -> Idle | None:
        """In place of a poll while the rest lasts. token: of the leader that has deployed the source."""
        return Idle(_LOOK_MS) if token <= self._token and self._clock() < self._until_s else None
