"""Sources rest for a moment after their leader was lost, if the next leader restarts their job.

reading --leader lost--> resting --the same leader is back, or REST_S--> reading

What they read meanwhile would be thrown away if the next leader is there within the rest, and would take processor time
from the takeover.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lockgate_proto.messages import EventTime, JobGraph, LeaderFailover

from lockgate_taskmanager.task.program import Idle

REST_S = 1.0
"""A takeover takes a fraction of it. A leader that is away for longer may come back itself: then reading counts."""
_LOOK_MS = 20


def may_rest(graph: JobGraph) -> bool:
    """Whether sources of this job rest: the next leader restarts it, and no source declares `idle_after`, for which a
    split that is not read during a rest would count as idle.
    """
    kinds = (operator.kind for vertex in graph.vertices for operator in vertex.operators)
    is_restarted = graph.leader_failover is not LeaderFailover.LEADER_FAILOVER_REATTACH
    return is_restarted and not any(isinstance(kind, EventTime) and kind.idle_after_ms for kind in kinds)


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
