"""What the leader was told of late: it may not have heard it when the stream breaks, and is told again on the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    Heartbeat,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
)

REPEAT_S = 10.0  # a leader that has not heard from here for longer counts this task manager as lost
REPEATED = 1_000


class RecentMessages:
    """Bodies in the order in which they were said. Pure; times in seconds on one monotonic clock."""

    def __init__(self) -> None:
        self._said: deque[tuple[float, int, Any]] = deque(maxlen=REPEATED)  # when, under which token, body

    def said(self, body: Any, token: int, now_s: float) -> None:
        """The leader with that token is being told, if there is a stream to it."""
        if isinstance(body, Heartbeat):
            return
        while self._said and now_s - self._said[0][0] > REPEAT_S:
            self._said.popleft()
        self._said.append((now_s, token, body))

    def heard(self, body: Any) -> None:
        """The leader has said something: acknowledgements, which may carry state, are of no use any more then.

        Those of other checkpoints in flight are: each needs all of its own.
        """
        if isinstance(body, NotifyCheckpointComplete):
            self._forget(body.attempt, lambda number: number <= body.checkpoint_id)
        elif isinstance(body, NotifyCheckpointAborted):
            self._forget(body.attempt, lambda number: number == body.checkpoint_id)

    def to_repeat(self, token: int, now_s: float) -> list[Any]:
        """What to say again to the leader with that token."""
        return [body for at, under, body in self._said if under == token and now_s - at <= REPEAT_S]

    def _forget(self, attempt: AttemptId | None, is_over: Callable[[int], bool]) -> None:
        def is_useless(body: Any) -> bool:
            if not isinstance(body, AcknowledgeCheckpoint) or body.subtask is None:
                return False
            return body.subtask.attempt == attempt and is_over(body.checkpoint_id)

        self._said = deque((one for one in self._said if not is_useless(one[2])), REPEATED)
