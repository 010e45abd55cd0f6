"""One control stream to one task manager: what waits to be sent, and how the stream ends."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import grpc
from lockgate_proto.messages import CoordinatorMessage, Heartbeat, Register, Registered

MAX_QUEUED = 10_000

UNCERTAIN_S = 20.0
"""What was handed over so shortly before a stream broke may not have arrived: keepalive finds a break in 15 s."""


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
        self._handed: deque[tuple[float, CoordinatorMessage]] = deque()  # monotonic seconds, oldest first
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
        """Ends the stream with a status for the peer. Messages that wait are kept for `take_undelivered`."""
        with self._changed:
            if self._end is None:
                self._end = (code, reason)
        self._on_change()

    @property
    def end(self) -> tuple[grpc.StatusCode, str] | None:
        """Why the stream has ended, None while it is open."""
        return self._end

    def take_undelivered(self) -> tuple[CoordinatorMessage, ...]:
        """What may not have arrived, in order, once closed: handed over lately, or still queued. No heartbeats.

        Task managers ignore what they hear twice, so saying too much again is harmless and saying too little is not.
        """
        with self._changed:
            self._forget(time.monotonic())
            undelivered = (*(message for _, message in self._handed), *self._queue)
            self._handed.clear()
            self._queue.clear()
        return tuple(one for one in undelivered if not isinstance(one.body, Heartbeat | Registered))

    def take(self) -> CoordinatorMessage | None:
        """The next message to be sent; None when there is none yet, or the link is closed."""
        with self._changed:
            if self._end is not None or not self._queue:
                return None
            message, now = self._queue.popleft(), time.monotonic()
            if not isinstance(message.body, Heartbeat | Registered):
                self._handed.append((now, message))
            self._forget(now)
            return message

    def _forget(self, now: float) -> None:
        while self._handed and now - self._handed[0][0] > UNCERTAIN_S:
            self._handed.popleft()


class Registration:
    """What a task manager said of itself when it opened a link."""

    __slots__ = ("link", "register", "task_manager_id", "token")

    def __init__(self, task_manager_id: str, token: int, register: Register, link: TaskManagerLink) -> None:
        self.task_manager_id = task_manager_id
        self.token = token
        self.register = register
        self.link = link
