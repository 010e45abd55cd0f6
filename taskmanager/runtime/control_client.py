"""ControlClient: the one stream to the leader.

    no leader known --on_leader--> connecting --Register sent--> connected --stream ends--> waiting --+
                                       ^                                                              |
                                       +------ a newer leader is announced, or the pause is over -----+

A stream that ends concerns nobody but this client: subtasks run on. A leader takes a task manager back that returns
over a new stream, so what was said of late is said to it again: the stream may have broken with messages on their way.
Every message can be heard twice. A leader with another token starts from what Register says.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from lockgate_proto import rpc
from lockgate_proto.messages import (
    CoordinatorMessage,
    Goodbye,
    Heartbeat,
    LeaderRecord,
    Register,
    Registered,
    SubtaskCounters,
    TaskManagerMessage,
)
from lockgate_proto.security import Credentials

from taskmanager.exchange.fencing import TokenFence
from taskmanager.runtime.recent import RecentMessages

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
SILENCE_BEATS = 6  # a leader that has sent heartbeats and is silent for so many of them is left
CLOSE_WAIT_S = 1.0
GOODBYE_WAIT_S = 5.0  # an idle leader takes a millisecond; meanwhile everything here goes on
# What trying again does not change: somebody has to change a setting (a duplicate id, a wrong secret, a full leader).
REFUSALS = frozenset(
    {
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


class LeaderConnection:
    """One stream to one leader."""

    def __init__(self, record: LeaderRecord, credentials: Credentials) -> None:
        self.record = record
        self._credentials = credentials
        self._outbox: queue.SimpleQueue[TaskManagerMessage | None] = queue.SimpleQueue()
        self._channel = credentials.channel(record.address)
        self._call = rpc.call(self._channel, "ControlService", "Connect")(
            self._requests(), metadata=credentials.metadata()
        )

    def send(self, message: TaskManagerMessage) -> None:
        """Queues a message. Never blocks."""
        self._outbox.put(message)

    def messages(self) -> Iterator[CoordinatorMessage]:
        """What the leader sends, until the stream ends. Raises grpc.RpcError."""
        yield from self._call

    def finish(self) -> None:
        """Sends what is queued and ends the stream from this side."""
        self._outbox.put(None)

    def abort(self) -> None:
        """Ends the stream at once."""
        self._outbox.put(None)
        self._call.cancel()

    def close(self) -> None:
        """Gives the connection back; after messages() has ended."""
        self._outbox.put(None)
        self._channel.close()

    def _requests(self) -> Iterator[TaskManagerMessage]:
        while (message := self._outbox.get()) is not None:
            yield message


class ControlClient:
    """Keeps this task manager registered with whoever leads.

    register: what to say first on a new stream. handle: takes every body whose token is not outdated, on the
    client's thread. on_registered: a leader has taken this task manager; on the same thread. counters: for heartbeats.
    """

    def __init__(
        self,
        task_manager_id: str,
        credentials: Credentials,
        fence: TokenFence,
        *,
        register: Callable[[], Register],
        handle: Callable[[Any], None],
        on_registered: Callable[[], None],
        counters: Callable[[], tuple[SubtaskCounters, ...]],
        heartbeat_ms: int,
    ) -> None:
        self._id, self._credentials, self._fence = task_manager_id, credentials, fence
        self._register, self._deliver, self._counters = register, handle, counters
        self._on_registered = on_registered
        self._heartbeat_s = heartbeat_ms / 1000
        self._changed = threading.Condition()
        self._leader: LeaderRecord | None = None
        self._connection: LeaderConnection | None = None
        self._is_stopping = False
        self._stop_beating = threading.Event()
        self._recent = RecentMessages()
        self._heard_beat_at = 0.0  # of the present connection; 0: none yet
        self._told_refusal = ""  # the refusal that was logged last; "" since a leader took this task manager
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._beater = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Starts connecting to what on_leader announces."""
        self._thread.start()
        self._beater.start()

    def on_leader(self, record: LeaderRecord | None) -> None:
        """Who leads, as ZooKeeper says. Fast, from any thread. None: nobody; the old stream is kept while it lasts."""
        if record is None:
            return
        with self._changed:
            known = self._leader
            if known == record:
                return
            if record.token < self._fence.highest:
                log.warning("leader %s has token %d, %d was seen", record.address, record.token, self._fence.highest)
                return
            log.info("leader: %s at %s, token %d", record.coordinator_id, record.address, record.token)
            self._leader = record
            if self._connection is not None and not _is_same(self._connection.record, record):
                self._connection.abort()
            self._changed.notify_all()

    def send(self, body: Any) -> None:
        """Sends a body to the leader, now or when it is back. Never blocks, from any thread."""
        with self._changed:
            self._recent.said(body, self._fence.highest, time.monotonic())
            connection = self._connection
            if connection is not None:
                connection.send(TaskManagerMessage(self._fence.highest, self._id, body))

    def _greet(self, connection: LeaderConnection) -> None:
        """Register first, then what this same leader was told of late."""
        for body in (self._register(), *self._recent.to_repeat(connection.record.token, time.monotonic())):
            connection.send(TaskManagerMessage(self._fence.highest, self._id, body))

    def leave(self) -> None:
        """Says good-bye and waits until the leader has ended the stream for it, GOODBYE_WAIT_S at most.

        No stream is opened after that. Where there is none, the leader has to find out by itself.
        """
        with self._changed:
            self._is_stopping = True
            connection = self._connection
            if connection is not None:
                connection.send(TaskManagerMessage(self._fence.highest, self._id, Goodbye()))
            self._changed.notify_all()
        if connection is not None:
            self._thread.join(GOODBYE_WAIT_S)
            if self._thread.is_alive():
                log.warning("the leader at %s has not answered the good-bye", connection.record.address)

    def stop(self) -> None:
        """Ends the stream after what is queued, and joins the threads."""
        with self._changed:
            self._is_stopping = True
            connection = self._connection
            self._changed.notify_all()
        self._stop_beating.set()
        if connection is not None:
            connection.finish()
            self._thread.join(CLOSE_WAIT_S)
            connection.abort()
        for thread in (self._thread, self._beater):
            if thread.ident is not None:
                thread.join(5.0)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        tried: LeaderRecord | None = None
        while (record := self._next_leader(tried, pause_s)) is not None:
            pause_s = FIRST_PAUSE_S if tried is None or record != tried else min(2 * pause_s, LONGEST_PAUSE_S)
            tried = record
            try:
                has_answered = self._talk(record)
            except Exception:
                log.exception("talking to the leader at %s failed", record.address)
                has_answered = False
            if has_answered:
                pause_s = FIRST_PAUSE_S

    def _next_leader(self, tried: LeaderRecord | None, pause_s: float) -> LeaderRecord | None:
        """A leader that was not tried yet at once; the same one again after a pause. None when stopping."""

        def is_news() -> bool:
            return self._is_stopping or (self._leader is not None and self._leader != tried)

        with self._changed:
            if tried is None:
                self._changed.wait_for(is_news)
            else:
                self._changed.wait_for(is_news, pause_s)
                # A leader that has been replaced is never tried again: wait for the one that replaced it.
                self._changed.wait_for(lambda: is_news() or tried.token >= self._fence.highest)
            return None if self._is_stopping else self._leader

    def _talk(self, record: LeaderRecord) -> bool:
        """One stream from Register to its end. True when the leader answered."""
        if not self._fence.observe(record.token):
            return False
        connection = LeaderConnection(record, self._credentials)
        with self._changed:
            self._greet(connection)
            self._connection = connection
            self._heard_beat_at = 0.0
            if self._is_stopping or self._leader != record:
                connection.abort()
        has_answered, is_refusal = False, False
        reason = "the leader ended it"
        try:
            for message in connection.messages():
                has_answered = True
                if not self._receive(message):
                    connection.abort()
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)
            is_refusal = isinstance(error, grpc.Call) and error.code() in REFUSALS and not has_answered
        finally:
            with self._changed:
                self._connection = None
            connection.close()
        self._tell_end(record, reason, has_answered, is_refusal)
        return has_answered

    def _tell_end(self, record: LeaderRecord, reason: str, has_answered: bool, is_refusal: bool) -> None:
        """The retries go on twice a second for hours: a refusal is for the operator once, until it is another one."""
        if has_answered:
            self._told_refusal = ""
        if is_refusal and reason != self._told_refusal:
            self._told_refusal = reason
            log.warning("the leader at %s refuses this task manager: %s", record.address, reason)
            return
        log.log(logging.INFO if has_answered else logging.DEBUG, "stream to %s ended: %s", record.address, reason)

    def _receive(self, message: CoordinatorMessage) -> bool:
        """False when the message comes from a leader that has been replaced."""
        if not self._fence.observe(message.token):
            log.warning("a message with token %d is refused, %d was seen", message.token, self._fence.highest)
            return False
        if isinstance(message.body, Registered):
            log.info("registered")
            self._on_registered()
            if message.body.heartbeat_interval_ms > 0:
                self._heartbeat_s = message.body.heartbeat_interval_ms / 1000
        elif isinstance(message.body, Heartbeat):
            self._heard_beat_at = time.monotonic()
        else:
            with self._changed:
                self._recent.heard(message.body)
            try:
                self._deliver(message.body)
            except Exception:
                log.exception("handling %s failed", type(message.body).__name__)
        return True

    def _beat(self) -> None:
        sequence = 0
        while not self._stop_beating.wait(self._heartbeat_s):
            sequence += 1
            self.send(Heartbeat(sequence, self._counters()))
            self._leave_silent_leader()

    def _leave_silent_leader(self) -> None:
        heard = self._heard_beat_at
        if not heard or time.monotonic() - heard < max(1.0, SILENCE_BEATS * self._heartbeat_s):
            return
        with self._changed:
            connection = self._connection
        if connection is not None:
            log.warning("the leader at %s is silent, the stream is given up", connection.record.address)
            self._heard_beat_at = 0.0
            connection.abort()


def _is_same(one: LeaderRecord, other: LeaderRecord) -> bool:
    return one.token == other.token and one.address == other.address
