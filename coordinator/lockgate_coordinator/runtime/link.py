"""One control stream to one task manager: what waits to be sent, and how the stream ends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import grpc
from lockgate_proto.messages import CoordinatorMessage, Register

MAX_QUEUED = 10_000


class TaskManagerLink:
    """The sending side of a control stream. `send` never blocks; a peer that stops reading is cut off.

    A link is made by the rpc, belongs to the term that admits it, and is closed once, by whoever is first.
    """

    def __init__(self, peer: str, on_change: Callable[[], None] = lambda: None) -> None:
        """peer: who it is, for the log. on_change: there is something to take, or the stream has ended. Any thread."""
        self.peer = peer
        self._on_change = on_change
        self._changed = threading.Lock()
        self._queue: deque[CoordinatorMessage] = deque()
        self._end: tuple[grpc.StatusCode, str] | None = None

    def send(self, message: CoordinatorMessage) -> bool:
        """Queues a message. False when the stream has ended, or ends now because its peer is far behind."""
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
        """Ends the stream with a status for the peer. Messages that wait are not sent on it."""
        with self._changed:
            if self._end is None:
                self._end = (code, reason)
        self._on_change()

    @property
    def end(self) -> tuple[grpc.StatusCode, str] | None:
        """Why the stream has ended, None while it is open."""
        return self._end

    def take(self) -> CoordinatorMessage | None:
        """The next message to be sent; None when there is none yet, or the link is closed."""
        with self._changed:
            if self._end is not None or not self._queue:
                return None
            return self._queue.popleft()


class Registration:
    """What a task manager said of itself when it opened a link."""

    __slots__ = ("acknowledged", "link", "register", "task_manager_id")

    def __init__(self, task_manager_id: str, register: Register, link: TaskManagerLink, acknowledged: int = 0) -> None:
        """acknowledged: the number that the Register names, of this leader's messages to the same process."""
        self.task_manager_id = task_manager_id
        self.register = register
        self.link = link
        self.acknowledged = acknowledged
