"""The sending side of one control stream to one task manager."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import grpc
from lockgate_proto.messages import CoordinatorMessage, Register

MAX_QUEUED = 10_000


class TaskManagerLink:
    """Queues messages for a control stream. `send` never blocks; a peer that stops reading is disconnected.

    A link is created by the rpc, belongs to the term that admits it, and is closed once, by either of them.
    """

    def __init__(self, peer: str, on_change: Callable[[], None] = lambda: None) -> None:
        """peer: its name in the log. on_change: on any thread, when there is a message or the stream has ended."""
        self.peer = peer
        self._on_change = on_change
        self._changed = threading.Lock()
        self._queue: deque[CoordinatorMessage] = deque()
        self._end: tuple[grpc.StatusCode, str] | None = None

    def send(self, message: CoordinatorMessage) -> bool:
        """Queues a message. False when the stream has ended, or ends now because its peer does not keep up."""
        with self._changed:
            if self._end is not None:
                return False
            if len(self._queue) < MAX_QUEUED:
                self._queue.append(message)
                self._on_change()
                return True
        self.close(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_QUEUED} messages wait to be read by this task manager")
        return False

    def close(self, code: grpc.StatusCode, reason: str) -> None:
        """Ends the stream with a status for the peer. Queued messages are not sent on it."""
        with self._changed:
            if self._end is None:
                self._end = (code, reason)
        self._on_change()

    @property
    def end(self) -> tuple[grpc.StatusCode, str] | None:
        """Why the stream has ended, None while it is open."""
        return self._end

    def take(self) -> CoordinatorMessage | None:
        """The next message to send; None when there is none, or the link is closed."""
        with self._changed:
            if self._end is not None or not self._queue:
                return None
            return self._queue.popleft()


class Registration:
    """The registration of a task manager on a link."""

    __slots__ = ("acknowledged", "link", "register", "task_manager_id", "token")

    def __init__(
        self, task_manager_id: str, register: Register, link: TaskManagerLink, token: int, acknowledged: int = 0
    ) -> None:
        """token: the highest one that the process had seen. acknowledged: number of the last message that it had
        received, of the leader with that token.
        """
        self.token = token
        self.task_manager_id = task_manager_id
        self.register = register
        self.link = link
        self.acknowledged = acknowledged
