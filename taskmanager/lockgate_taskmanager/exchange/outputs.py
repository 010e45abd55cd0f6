"""Output channels of one subtask: LocalOutput hands tables over by reference, RemoteOutput streams them over gRPC.

`send` is called by the subtask's thread and blocks while the receiver is behind; `cancel` comes from any thread and
ends the wait. Order within a channel is the order of `send`.

An elastic output never blocks: its subtask has to see a barrier while the receiver is behind, so it checks `has_room`
before it makes the next batch. The queue exceeds its bound by at most one batch.

An output with a ReplayLog outlives its receiver: when the channel breaks it waits for `rejoin`, and what is sent
meanwhile is in the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import grpc
import pyarrow as pa
from lockgate_common.proof import Peer
from lockgate_proto import rpc
from lockgate_proto.messages import (
    Barrier,
    ChannelOpen,
    ExchangeSignal,
    StreamElement,
    SubtaskId,
)

from lockgate_taskmanager.exchange.elements import ALONE, BatchPiece, Element, split, to_message
from lockgate_taskmanager.exchange.errors import ChannelBroken, ChannelClosed
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outbox import Outbox
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.replay_log import Kept, ReplayLog, Sent

log = logging.getLogger(__name__)

QUEUE_BYTES = 8 * 1024 * 1024
QUEUE_ELEMENTS = 64
ACCEPT_TIMEOUT_MS = 15_000  # the receiver itself waits 10 s for its deployment


def not_accepted(timeout_ms: int) -> ChannelBroken:
    """The error for a channel that its receiver has not accepted in time."""
    return ChannelBroken(f"a downstream subtask did not accept its channel within {timeout_ms / 1000:g} s")


class OutputChannel(Protocol):
    """One channel to one downstream subtask."""

    def start(self) -> None:
        """Connects; does not wait for the receiver. Raises ChannelBroken."""
        ...

    def send(self, element: Element, place: BatchPiece = ALONE) -> None:
        """Appends an element. Raises ChannelClosed after cancel(), ChannelBroken, RecordTooLarge."""
        ...

    def require_intact(self) -> None:
        """Raises ChannelBroken for a channel on which nothing will ever arrive."""
        ...

    def has_room(self) -> bool:
        """False while the receiver is behind."""
        ...

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        """Sends an unaligned barrier ahead of the queued elements, but behind other barriers; returns the overtaken
        elements.
        """
        ...

    def cancel(self) -> None:
        """Closes the channel at once and drops the queue. Idempotent, from any thread."""
        ...

    @property
    def is_accepted(self) -> bool:
        """True when the receiver has accepted the channel."""
        ...

    @property
    def queued_bytes(self) -> int:
        """What waits on this side; 0 for a receiver in this process."""
        ...


class LocalOutput:
    """A channel to a subtask of this process: it has no queue but the receiver's.

    on_writable: makes the output elastic; called from any thread when the receiver has caught up.
    """

    def __init__(self, gate: InputGate, channel: int, on_writable: Callable[[], object] | None = None) -> None:
        self._gate = gate
        self._channel = channel
        self._on_writable = on_writable
        self._canceled = False

    @property
    def is_accepted(self) -> bool:
        """True: the gate is in this process."""
        return True

    @property
    def queued_bytes(self) -> int:
        return 0

    def start(self) -> None:
        try:
            if not self._gate.connect(self._channel, on_writable=self._on_writable):
                raise ChannelBroken(f"input channel {self._channel} already has a sender")
        except ChannelClosed as closed:
            raise ChannelBroken(str(closed)) from closed

    def send(self, element: Element, place: BatchPiece = ALONE) -> None:  # noqa: ARG002
        """place: of no use, as sender and receiver are lost together."""
        try:
            if self._canceled:
                raise ChannelClosed("the sending subtask is canceled")
            if self._on_writable is None:
                self._gate.put(self._channel, element, lambda: self._canceled)
                return
            for piece in split(element) if isinstance(element, pa.Table) else (element,):
                self._gate.put(self._channel, piece, may_overflow=True)
        except ChannelClosed as closed:
            if self._canceled:
                raise
            raise ChannelBroken(str(closed)) from closed

    def require_intact(self) -> None:
        """The next `send` says it."""

    def has_room(self) -> bool:
        return self._canceled or self._gate.has_room(self._channel)

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        """The overtaken elements are in the receiver's queue; the receiver records them."""
        self.send(barrier)
        return ()

    def cancel(self) -> None:
        self._canceled = True
        self._gate.wake_senders(self._channel)


class _Connection:
    """One stream of a RemoteOutput, to one process. Its fields are changed under the output's lock."""

    def __init__(self, peers: PeerChannels, peer: Peer, hello: ChannelOpen) -> None:
        self.peer, self.hello = peer, hello
        self.introduction = peers.credentials.introduction(peer, rpc.path("ExchangeService", "Open"))
        self.is_proven = self.is_accepted = self.is_over = False
        self.call: grpc.Call | None = None
        self.overdue: threading.Timer | None = None
        self._peers = peers
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def open(self, requests: Iterator[StreamElement]) -> grpc.Call:
        """Does not wait for the receiver."""
        self._channel = self._peers.acquire(self.peer)
        open_stream = rpc.call(self._channel, "ExchangeService", "Open")
        call = open_stream(requests, metadata=self.introduction.metadata, wait_for_ready=True)
        assert isinstance(call, grpc.Call)
        return call

    def close(self) -> None:
        """Ends the stream at once."""
        if self.overdue is not None:
            self.overdue.cancel()
        with self._lock:  # two may close it at the same time, and it is released once
            call, channel = self.call, self._channel
            if call is not None:
                self._channel = None
        if call is not None and channel is not None:
            call.cancel()
            self._peers.release(channel)


class RemoteOutput:
    """A channel to a subtask of another task manager.

    Two threads: grpcio's own takes elements from the bounded queue and writes them as far as flow control allows; ours
    reads the answers and so learns of acceptance and of the end.

    instance: of the process at `address`, which must prove its identity before anything is sent.
    on_lost: called with a sentence, from any thread, when the channel breaks before cancel().
    accept_timeout_ms: after start(); a send that blocks longer on a channel that is not accepted raises ChannelBroken.
    on_writable: makes the output elastic; called from any thread when a full queue has room again.
    log: of a channel that outlives its receiver, see `rejoin`, once this has accepted it.
    """

    def __init__(
        self,
        peers: PeerChannels,
        address: str,
        hello: ChannelOpen,
        on_lost: Callable[[str], None],
        *,
        max_bytes: int = QUEUE_BYTES,
        max_elements: int = QUEUE_ELEMENTS,
        instance: str = "",
        accept_timeout_ms: int = ACCEPT_TIMEOUT_MS,
        on_writable: Callable[[], object] | None = None,
        log: ReplayLog | None = None,
    ) -> None:
        self._on_writable = on_writable
        self._peers, self._on_lost = peers, on_lost
        self._accept_timeout_ms = accept_timeout_ms
        self._accept_by_s = 0.0
        self._box = Outbox(max_bytes, max_elements, log)
        self._condition = threading.Condition()
        self._canceled = False
        self._connection = _Connection(peers, Peer(address, instance), hello)
        self._reader: threading.Thread | None = None

    @property
    def is_accepted(self) -> bool:
        return self._connection.is_accepted

    @property
    def queued_bytes(self) -> int:
        return self._box.queued_bytes

    @property
    def kept(self) -> Kept | None:
        """What its log holds; None without one. From any thread."""
        return self._box.kept

    @property
    def received(self) -> Mapping[str, int]:
        """When it is accepted: how far the receiver has had the splits of an earlier attempt of this subtask."""
        return self._box.received

    def require_intact(self) -> None:
        with self._condition:
            if not self._canceled:
                self._check()

    def start(self) -> None:
        self._accept_by_s = time.monotonic() + self._accept_timeout_ms / 1000
        self._connect(self._connection)

    def send(self, element: Element, place: BatchPiece = ALONE) -> None:
        for piece in self._box.pieces(element, place):
            with self._condition:
                while not (self._canceled or self._box.is_over or self._is_elastic or self._box.fits(piece.size)):
                    self._condition.wait(self._wait_limit_s())
                self._check()
                self._box.add(piece, is_had=self._box.has_had(place.ranges))
                self._condition.notify_all()

    @property
    def target(self) -> SubtaskId | None:
        """The receiver."""
        return self._connection.hello.target

    @property
    def is_absent(self) -> bool:
        """Whether it waits for another attempt of its receiver."""
        return bool(self._box.broken)

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: no receiver begins again before it."""
        with self._condition:
            self._box.completed(checkpoint_id)

    def rejoin(self, address: str, instance: str, hello: ChannelOpen, checkpoint_id: int) -> None:
        """Another attempt of the receiver begins at this completed checkpoint: it gets everything from there on.

        From any thread. Raises CannotRejoin, ChannelClosed.
        """
        connection = _Connection(self._peers, Peer(address, instance), hello)
        with self._condition:
            if self._canceled:
                raise ChannelClosed("the sending subtask is canceled")
            self._box.rejoined(self._name(), checkpoint_id)
            former, self._connection = self._connection, connection
            former.is_over = True
            connection.overdue = threading.Timer(self._accept_timeout_ms / 1000, self._give_up, (connection,))
            connection.overdue.daemon = True
            connection.overdue.start()  # while nothing is sent there is no other who waits
            self._accept_by_s = time.monotonic() + self._accept_timeout_ms / 1000
            self._condition.notify_all()
        former.close()
        self._connect(connection)

    def cancel(self) -> None:
        with self._condition:
            if self._canceled:
                return
            self._canceled = True
            self._box.clear()
            self._condition.notify_all()
            connection = self._connection
        connection.close()

    def join(self, timeout_s: float) -> bool:
        """Waits for the reading thread after cancel(). False when it is still running."""
        if self._reader is None:
            return True
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def has_room(self) -> bool:
        with self._condition:
            return self._canceled or self.is_absent or self._box.is_below_bound

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        """Elements that have left the queue are in transit, and recorded by the receiver."""
        with self._condition:
            self._check()
            behind = self._box.overtake(barrier)
            self._condition.notify_all()
        return behind

    def _connect(self, connection: _Connection) -> None:
        call = connection.open(self._requests(connection))
        with self._condition:
            connection.call = call
            is_late = self._canceled or connection is not self._connection
        if is_late:
            connection.close()
        name = f"output-{self._name()}"
        self._reader = threading.Thread(target=self._read, args=(connection, call), name=name, daemon=True)
        self._reader.start()

    @property
    def _is_elastic(self) -> bool:
        return self._on_writable is not None

    def _wait_limit_s(self) -> float | None:
        """How long a blocked send may wait before it checks again; None when only the receiver's pace blocks it.

        The subtask cannot check the acceptance itself while it is blocked here, and nothing else ends the wait for an
        address at which no process answers. Raises ChannelBroken.
        """
        if self.is_accepted or self.is_absent:
            return None
        left_s = self._accept_by_s - time.monotonic()
        if left_s <= 0:
            raise not_accepted(self._accept_timeout_ms)
        return left_s

    def _check(self) -> None:
        if self._canceled:
            raise ChannelClosed("the sending subtask is canceled")
        if self._box.is_over:
            raise ChannelBroken(self._box.broken)

    def _is_idle(self, connection: _Connection) -> bool:
        """Nothing more is to be sent over this connection."""
        return self._canceled or connection.is_over

    def _requests(self, connection: _Connection) -> Iterator[StreamElement]:
        with self._condition:
            self._condition.wait_for(lambda: connection.is_proven or self._is_idle(connection))
            if not connection.is_proven:
                return
        yield StreamElement(connection.hello)
        while True:
            sent = self._next(connection)
            if sent is None:
                return
            element = sent.element
            message = to_message(element) if isinstance(element, pa.Table) else element
            yield StreamElement(message, sent.more, sent.read_to)

    def _next(self, connection: _Connection) -> Sent | None:
        """The next element, see Outbox.take."""
        with self._condition:
            box = self._box
            self._condition.wait_for(lambda: box.queue or self._is_idle(connection))
            if self._is_idle(connection):
                return None
            was_full = not box.is_below_bound
            sent = box.take()
            self._condition.notify_all()
            is_relieved = was_full and box.is_below_bound
        if is_relieved and self._on_writable is not None:
            self._on_writable()
        return sent

    def _read(self, connection: _Connection, call: grpc.Call) -> None:
        reason = "the receiver ended it"
        try:
            connection.introduction.wait_proven(call)
            with self._condition:
                connection.is_proven = True
                self._condition.notify_all()
            for signal in call:  # type: ignore[attr-defined]
                if signal.accepted and not connection.is_accepted:
                    self._accepted(connection, signal)
        except grpc.RpcError as error:
            reason = _sentence(error)
        self._break(connection, reason)

    def _accepted(self, connection: _Connection, signal: ExchangeSignal) -> None:
        with self._condition:
            if not connection.is_over:
                self._box.accepted(signal)
            connection.is_accepted = True
            if connection.overdue is not None:
                connection.overdue.cancel()

    def _give_up(self, connection: _Connection) -> None:
        self._break(connection, str(not_accepted(self._accept_timeout_ms)), unless_accepted=True)
        if connection.is_over:
            connection.close()

    def _break(self, connection: _Connection, reason: str, *, unless_accepted: bool = False) -> None:
        with self._condition:
            if self._is_idle(connection) or (unless_accepted and connection.is_accepted):
                return
            connection.is_over = True
            broken = f"the channel to {self._name()} at {connection.peer.address} broke: {reason}"
            self._box.broke(broken, for_good=not connection.is_accepted)
            self._condition.notify_all()
        log.info("%s", broken)
        self._on_lost(broken)

    def _name(self) -> str:
        target = self._connection.hello.target
        return f"{target.vertex_id}[{target.subtask}]" if target is not None else "?"


def _sentence(error: grpc.RpcError) -> str:
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)
