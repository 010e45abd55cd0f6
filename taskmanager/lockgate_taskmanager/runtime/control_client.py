"""ControlClient: the one stream to the leader.

    no leader known --on_leader--> connecting --Register sent--> connected --stream ends--> waiting --+
                                       ^                                                              |
                                       +------ a newer leader is announced, or the pause is over -----+

The end of a stream affects only this client: subtasks run on. A leader accepts a task manager that returns over a new
stream; both sides resend what the other has not acknowledged, and drop what they have handled. A leader with another
token starts from the contents of Register.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
from lockgate_common.clock import monotonic_ms
from lockgate_common.metrics.family import Tally
from lockgate_common.proof import Peer, UnprovenPeer
from lockgate_common.recurring_log import RecurringLog
from lockgate_common.security import Credentials
from lockgate_common.session import Session
from lockgate_proto import rpc
from lockgate_proto.codec import element_count, encode
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptProgress,
    CoordinatorMessage,
    DeclineCheckpoint,
    FailureCause,
    Goodbye,
    Heartbeat,
    LeaderRecord,
    Register,
    Registered,
    SplitsDiscovered,
    SubtaskCounters,
    SubtaskReport,
    TaskManagerMessage,
)

from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.runtime.report_batches import ALONE, REPORTS, Company, ReportBatches

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
SILENCE_BEATS = 6  # a leader that has sent heartbeats is left after this many missing ones
CLOSE_WAIT_S = 1.0
GOODBYE_WAIT_S = 5.0  # an idle leader takes a millisecond; meanwhile everything here continues
ENVELOPE_BYTES = 1024
# Errors that retrying does not fix: a setting has to be changed (a duplicate id, a wrong secret, a full leader).
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
    """One stream to one leader. Nothing is sent, and nothing taken, before the leader has proved itself."""

    def __init__(self, record: LeaderRecord, credentials: Credentials) -> None:
        self.record = record
        self._outbox: queue.SimpleQueue[TaskManagerMessage | None] = queue.SimpleQueue()
        self._proven = threading.Event()  # or over
        self._is_over = False
        self._channel = credentials.channel(record.address, rpc.CONTROL_OPTIONS)
        self._introduction = credentials.introduction(
            Peer(record.address, record.instance), rpc.path("ControlService", "Connect")
        )
        self._call = rpc.call(self._channel, "ControlService", "Connect")(
            self._requests(), metadata=self._introduction.metadata
        )

    def send(self, message: TaskManagerMessage) -> None:
        """Queues a message. Never blocks."""
        self._outbox.put(message)

    def messages(self) -> Iterator[CoordinatorMessage]:
        """Messages from the leader, until the stream ends. Raises grpc.RpcError, UnprovenPeer."""
        self._introduction.wait_proven(self._call)
        self._proven.set()
        yield from self._call

    def finish(self) -> None:
        """Sends the queued messages and ends the stream from this side."""
        self._outbox.put(None)

    def abort(self) -> None:
        """Ends the stream at once."""
        self._end()
        self._call.cancel()

    def close(self) -> None:
        """Releases the connection; call it after messages() has ended."""
        self._end()
        self._channel.close()

    def _end(self) -> None:
        self._is_over = True
        self._proven.set()
        self._outbox.put(None)

    def _requests(self) -> Iterator[TaskManagerMessage]:
        self._proven.wait()
        while (message := self._outbox.get()) is not None and not self._is_over:
            yield message


class ControlClient:
    """Keeps this task manager registered with the current leader.

    register: builds the first message of a new stream. handle: gets every body whose token is current, on the client's
    thread. on_registered: called on the same thread when a leader has registered this task manager. on_lost: likewise,
    with its token, when the stream to it has ended. counters: for heartbeats. on_beat: called whenever one is due, on
    another thread.
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
        on_lost: Callable[[int], None] = lambda _token: None,
        counters: Callable[[], tuple[SubtaskCounters, ...]],
        heartbeat_ms: int,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._id, self._credentials, self._fence = task_manager_id, credentials, fence
        self._register, self._deliver, self._counters = register, handle, counters
        self._on_registered, self._on_lost, self._on_beat = on_registered, on_lost, on_beat
        self._heartbeat_s = heartbeat_ms / 1000
        lock = threading.RLock()
        self._changed, self._reported = threading.Condition(lock), threading.Condition(lock)
        self._leader: LeaderRecord | None = None
        self._connection: LeaderConnection | None = None
        self._is_stopping = False
        self._stop_beating = threading.Event()
        self._session: Session[Any] = Session()
        self._batches = ReportBatches()
        self._takes_batches = False  # the leader of the current connection, as far as is known
        self._heartbeat_at = 0.0  # of the current connection; 0: none yet
        self._is_registered = False  # over the current connection
        self.streams = Tally()
        """Those that were opened."""
        self._trouble = RecurringLog()
        self._logged_refusal = ""  # the refusal that was logged last; "" since a leader registered this task manager
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._beater = threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True)
        self._batcher = threading.Thread(target=self._send_batches, name="reports", daemon=True)

    def start(self) -> None:
        """Starts connecting to the leaders that on_leader announces."""
        for thread in (self._thread, self._beater, self._batcher):
            thread.start()

    def on_leader(self, record: LeaderRecord | None) -> None:
        """The current leader according to ZooKeeper. Fast, from any thread.

        None: no leader; the old stream is kept while it lasts.
        """
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

    def send(self, body: Any, company: Company = ALONE) -> None:
        """Sends a body to the leader, now or after a reconnect. Never blocks, from any thread.

        A message that cannot be sent would break every stream: it is replaced by an error report where one exists.
        company: of a report, which may wait for others: see ReportBatches. The order of messages is kept.
        """
        if isinstance(body, Heartbeat):
            with self._changed:
                self._send(body, 0)
            return
        size_bytes, problem = _measured(body)
        if problem:
            log.error("%s cannot be sent: %s", type(body).__name__, problem)
            body, size_bytes = _sentence(body, problem), 0
            if body is None:
                return
        with self._changed:
            if not (company.wait_ms and self._takes_batches and isinstance(body, REPORTS)):
                self._send_batch()
                self._send(body, self._session.send(body))
            elif self._batches.add(body, size_bytes, company, monotonic_ms()):
                self._send_batch()
            else:
                self._reported.notify()

    def _send(self, body: Any, sequence: int) -> None:
        if self._connection is not None:
            self._connection.send(self._message(body, sequence))

    def _send_batch(self) -> None:
        """Sends the reports that wait, if any do. Under the lock."""
        if self._batches:
            body = self._batches.take()
            self._send(body, self._session.send(body))

    def _send_batches(self) -> None:
        with self._reported:
            while not self._stop_beating.is_set():
                due_ms = self._batches.next_due_ms()
                if due_ms is not None and (wait_ms := due_ms - monotonic_ms()) <= 0:
                    self._send_batch()
                else:
                    self._reported.wait(wait_ms / 1000 if due_ms is not None else None)

    def _message(self, body: Any, sequence: int = 0) -> TaskManagerMessage:
        return TaskManagerMessage(self._fence.highest, self._id, body, sequence, self._session.handled)

    def _send_first_messages(self, connection: LeaderConnection) -> None:
        """Register first, then the messages that this same leader has not acknowledged."""
        register = _sendable(self._register())
        connection.send(self._message(register))
        for sequence, body in self._session.unacknowledged():
            connection.send(self._message(body, sequence))

    @property
    def is_connected(self) -> bool:
        """Whether a leader has registered this task manager over the stream that is open now."""
        return self._is_registered

    def leave(self) -> None:
        """Says goodbye and waits until the leader has ended the stream in response, GOODBYE_WAIT_S at most.

        No stream is opened after that. Without a stream the leader has to detect the loss by itself.
        """
        with self._changed:
            self._is_stopping = True
            self._send_batch()
            connection = self._connection
            if connection is not None:
                connection.send(self._message(Goodbye()))
            self._changed.notify_all()
        if connection is not None:
            self._thread.join(GOODBYE_WAIT_S)
            if self._thread.is_alive():
                log.warning("the leader at %s has not confirmed the goodbye", connection.record.address)

    def stop(self) -> None:
        """Ends the stream after the queued messages, and joins the threads."""
        with self._changed:
            self._is_stopping = True
            self._send_batch()
            connection = self._connection
            self._stop_beating.set()
            self._changed.notify_all()
            self._reported.notify_all()
        if connection is not None:
            connection.finish()
            self._thread.join(CLOSE_WAIT_S)
            connection.abort()
        for thread in (self._thread, self._beater, self._batcher):
            if thread.ident is not None:
                thread.join(5.0)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        tried: LeaderRecord | None = None
        while (record := self._next_leader(tried, pause_s)) is not None:
            pause_s = FIRST_PAUSE_S if tried is None or record != tried else min(2 * pause_s, LONGEST_PAUSE_S)
            tried = record
            try:
                has_answered = self._run_stream(record)
            except Exception:
                text = "the control stream to the leader at %s failed"
                self._trouble.error(log, "stream", text, record.address, exc_info=True)
                has_answered = False
            if has_answered:
                pause_s = FIRST_PAUSE_S

    def _next_leader(self, tried: LeaderRecord | None, pause_s: float) -> LeaderRecord | None:
        """A leader that was not tried yet at once; the same one again after a pause. None when stopping."""

        def is_new_leader() -> bool:
            return self._is_stopping or (self._leader is not None and self._leader != tried)

        with self._changed:
            if tried is None:
                self._changed.wait_for(is_new_leader)
            else:
                self._changed.wait_for(is_new_leader, pause_s)
                # A leader that has been replaced is never tried again: wait for its successor.
                self._changed.wait_for(lambda: is_new_leader() or tried.token >= self._fence.highest)
            return None if self._is_stopping else self._leader

    def _run_stream(self, record: LeaderRecord) -> bool:
        """One stream from Register to its end. True when the leader answered."""
        with self._changed:
            if not self._accepts_token(record.token):
                return False
            connection = LeaderConnection(record, self._credentials)
            self.streams.add()
            self._send_first_messages(connection)
            self._connection, self._takes_batches = connection, False
            self._heartbeat_at = 0.0
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
            refused = isinstance(error, grpc.Call) and error.code() in REFUSALS
            if problem := self._credentials.handshake_problem(reason):
                reason, refused = f"it {problem}", True
            is_refusal = (refused or isinstance(error, UnprovenPeer)) and not has_answered
        finally:
            with self._changed:
                if self._is_registered:
                    self._on_lost(record.token)
                self._connection, self._is_registered = None, False
            connection.close()
        self._log_stream_end(record, reason, has_answered, is_refusal)
        return has_answered

    def _log_stream_end(self, record: LeaderRecord, reason: str, has_answered: bool, is_refusal: bool) -> None:
        """Retries continue twice a second for hours: log a refusal once, until it changes."""
        if has_answered:
            self._logged_refusal = ""
        if is_refusal and reason != self._logged_refusal:
            self._logged_refusal = reason
            log.warning("the leader at %s refuses this task manager: %s", record.address, reason)
            return
        log.log(logging.INFO if has_answered else logging.DEBUG, "stream to %s ended: %s", record.address, reason)

    def _receive(self, message: CoordinatorMessage) -> bool:
        """False when the stream is to be left: its leader has been replaced, or leads again."""
        with self._changed:
            if not self._accepts_token(message.token):
                log.warning("message with token %d refused: token %d was seen", message.token, self._fence.highest)
                return False
            if self._is_of_a_later_term(message.token):
                return False
            is_new = self._session.receive(message.sequence, message.acknowledged)
        if isinstance(message.body, Registered):
            log.info("registered")
            self._is_registered, self._takes_batches = True, message.body.takes_batches
            self._on_registered()
            if message.body.heartbeat_interval_ms > 0:
                self._heartbeat_s = message.body.heartbeat_interval_ms / 1000
        elif isinstance(message.body, Heartbeat):
            self._heartbeat_at = time.monotonic()
            if message.body.interval_ms > 0:
                self._heartbeat_s = message.body.interval_ms / 1000
        elif is_new:
            try:
                self._deliver(message.body)
            except Exception:
                log.exception("handling %s failed", type(message.body).__name__)
        return True

    def _is_of_a_later_term(self, token: int) -> bool:
        """Whether the leader was granted leadership again since ZooKeeper announced it: connects to it once more.

        What was sent to it under the earlier token counts for nothing there, so everything is reported to it again.
        """
        connection = self._connection
        if connection is None or token <= connection.record.token:
            return False
        if self._leader == connection.record:
            self._leader = replace(connection.record, token=token)
        return True

    def _accepts_token(self, token: int) -> bool:
        """False for a leader that has been replaced. A new term may be seen here before ZooKeeper announces it."""
        if not self._fence.observe(token):
            return False
        if self._session.enter(token):
            self._batches = ReportBatches()  # as with what was sent: the registration has it
        return True

    def _send_heartbeats(self) -> None:
        sequence = 0
        while not self._stop_beating.wait(self._heartbeat_s):
            sequence += 1
            self.send(Heartbeat(sequence, self._counters()))
            self._leave_silent_leader()
            try:
                self._on_beat()
            except Exception:  # heartbeats must go on
                self._trouble.error(log, "heartbeat", "what comes with a heartbeat failed", exc_info=True)

    def _leave_silent_leader(self) -> None:
        heartbeat_at = self._heartbeat_at
        if not heartbeat_at or time.monotonic() - heartbeat_at < max(1.0, SILENCE_BEATS * self._heartbeat_s):
            return
        with self._changed:
            connection = self._connection
        if connection is not None:
            log.warning("no message from the leader at %s, closing the stream", connection.record.address)
            self._heartbeat_at = 0.0
            connection.abort()


def _is_same(leader_record: LeaderRecord, other: LeaderRecord) -> bool:
    return leader_record.token == other.token and leader_record.address == other.address


def _sendable(register: Register) -> Register:
    """The registration, or as much of it as fits: without counters, and without the attempts with most splits."""
    if not _unsendable(register):
        return register
    kept: tuple[AttemptProgress, ...] = ()
    for known in sorted(map(_without_counters, register.progress), key=_splits):
        if problem := _unsendable(replace(register, progress=(*kept, known))):
            log.warning("the leader cannot adopt attempt %d of %s: %s", *_named(known), problem)
        else:
            kept = (*kept, known)
    return replace(register, progress=kept)


def _splits(known: AttemptProgress) -> int:
    return sum(len(subtask.assigned) for subtask in known.subtasks)


def _without_counters(known: AttemptProgress) -> AttemptProgress:
    return replace(known, subtasks=tuple(replace(subtask, counters=()) for subtask in known.subtasks))


def _unsendable(body: Any) -> str:
    """Why a message cannot be sent over any stream; "" when it can."""
    return _measured(body)[1]


def _measured(body: Any) -> tuple[int, str]:
    """The encoded size of a message, and why it cannot be sent over any stream; "" when it can."""
    try:
        size = len(encode(body))
    except (TypeError, ValueError) as error:  # text that is not valid Unicode, such as a file name in another encoding
        return 0, f"{type(error).__name__}: {error}"
    limit = rpc.MAX_MESSAGE_BYTES - ENVELOPE_BYTES
    if size > limit:
        return size, f"it has {size:,} bytes, and {limit:,} fit into a message"
    limit = rpc.MAX_MESSAGE_ELEMENTS
    count = element_count(body) if size > limit else 0  # an element takes at least a byte
    return size, f"it has {count:,} elements, and {limit:,} fit into a message" if count > limit else ""


def _sentence(body: Any, problem: str) -> Any:
    """The replacement for a message that cannot be sent; None when there is none."""
    text = ascii(f"{type(body).__name__} cannot be sent: {problem}")[1:-1]
    match body:
        case SubtaskReport(subtask, phase, cause, cause_id=cause_id):
            return SubtaskReport(subtask, phase, cause, text, cause_id=cause_id)
        case SplitsDiscovered(attempt, vertex_id, round=number):
            return SplitsDiscovered(attempt, vertex_id, error=text, cause=FailureCause.USER_ERROR, round=number)
        case AcknowledgeCheckpoint(subtask, checkpoint_id) | DeclineCheckpoint(subtask, checkpoint_id):
            return DeclineCheckpoint(subtask, checkpoint_id, text)
    return None


def _named(known: AttemptProgress) -> tuple[int, str]:
    return (known.attempt.attempt, known.attempt.job_key) if known.attempt is not None else (0, "")
