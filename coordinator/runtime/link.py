"""One control stream to one task manager: what waits to be sent, and how the stream ends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import grpc
from lockgate_proto.messages import CoordinatorMessage, NotifyCheckpointComplete, Register

from coordinator.runtime import faults

MAX_QUEUED = 10_000


class TaskManagerLink:
    """The sending side of a control stream. `send` never blocks; a peer that stops reading is cut off.

    A link is made by the rpc, belongs to the term that admits it, and is closed once, by whoever is first.
    """

    def __init__(self, peer: str) -> None:
        """peer: who it is, for the log."""
        self.peer = peer
        self._changed = threading.Condition()
        self._queue: deque[CoordinatorMessage] = deque()
        self._end: tuple[grpc.StatusCode, str] | None = None

    def send(self, message: CoordinatorMessage) -> bool:
        """Queues a message. False when the stream has ended, or ends now because its peer is far behind."""
        with self._changed:
            if self._end is not None:
                return False
            if len(self._queue) < MAX_QUEUED:
                self._queue.append(message)
                self._changed.notify_all()
                return True
        self.close(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_QUEUED} messages wait to be read by this task manager")
        return False

    def close(self, code: grpc.StatusCode, reason: str) -> None:
        """Ends the stream with a status for the peer. Messages that wait are kept for `take_unsent`."""
        with self._changed:
            if self._end is None:
                self._end = (code, reason)
            self._changed.notify_all()

    @property
    def end(self) -> tuple[grpc.StatusCode, str] | None:
        """Why the stream has ended, None while it is open."""
        return self._end

    def take_unsent(self) -> tuple[CoordinatorMessage, ...]:
        """What was queued and never handed to the network, once closed."""
        with self._changed:
            unsent = tuple(self._queue)
            self._queue.clear()
            return unsent

    def outgoing(self) -> Iterator[CoordinatorMessage]:
        """Blocks for each next message; stops when the link is closed."""
        while (message := self._next()) is not None:
            notifies = isinstance(message.body, NotifyCheckpointComplete)
            if notifies:
                faults.point("before-notify")
            yield message
            if notifies:  # asked for the next one: this one is on its way
                faults.point("after-notify")

    def _next(self) -> CoordinatorMessage | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._end is not None)
            if self._end is not None:
                return None
            return self._queue.popleft()


class Registration:
    """What a task manager said of itself when it opened a link."""

    __slots__ = ("link", "register", "task_manager_id", "token")

    def __init__(self, task_manager_id: str, token: int, register: Register, link: TaskManagerLink) -> None:
        self.task_manager_id = task_manager_id
        self.token = token
        self.register = register
        self.link = link
