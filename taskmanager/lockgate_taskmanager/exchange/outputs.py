"""Output channels of one subtask: LocalOutput hands tables over by reference, RemoteOutput streams them over gRPC.

`send` is called by the subtask's thread and blocks while the receiver is behind; `cancel` comes from any thread and
ends the wait. Order within a channel is the order of `send`.

An elastic output never blocks: its subtask has to see a barrier while the receiver is behind, so it checks `has_room`
before it makes the next batch. The queue exceeds its bound by at most one batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import grpc
import pyarrow as pa
from lockgate_common.proof import Peer
from lockgate_proto import rpc
from lockgate_proto.messages import Barrier, ChannelOpen, EndOfInput, LoopProbe, StreamElement

from lockgate_taskmanager.exchange.elements import MESSAGE_BYTES, Element, size_of, split, to_message
from lockgate_taskmanager.exchange.errors import ChannelBroken, ChannelClosed, RecordTooLarge
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.peers import PeerChannels

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

    def send(self, element: Element) -> None:
        """Appends an element. Raises ChannelClosed after cancel(), ChannelBroken, RecordTooLarge."""
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

    def send(self, element: Element) -> None:
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

    def has_room(self) -> bool:
        return self._canceled or self._gate.has_room(self._channel)

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        """The overtaken elements are in the receiver's queue; the receiver records them."""
        self.send(barrier)
        return ()

    def cancel(self) -> None:
        self._canceled = True
        self._gate.wake_senders(self._channel)


class RemoteOutput:
    """A channel to a subtask of another task manager.

    Two threads: grpcio's own takes elements from the bounded queue and writes them as far as flow control allows; ours
    reads the answers and so learns of acceptance and of the end.

    instance: of the process at `address`, which must prove its identity before anything is sent.
    on_lost: called with a sentence, from any thread, when the channel breaks before cancel().
    accept_timeout_ms: after start(); a send that blocks longer on a channel that is not accepted raises ChannelBroken.
    on_writable: makes the output elastic; called from any thread when a full queue has room again.
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
    ) -> None:
        self._on_writable = on_writable
        self._peer = Peer(address, instance)
        self._introduction = peers.credentials.introduction(self._peer, rpc.path("ExchangeService", "Open"))
        self._peers, self._address, self._hello, self._on_lost = peers, address, hello, on_lost
        self._max_bytes, self._max_elements = max_bytes, max_elements
        self._accept_timeout_ms = accept_timeout_ms
        self._accept_by_s = 0.0
        self._queue: deque[tuple[Element, int]] = deque()
        self._queued_bytes = 0
        self._condition = threading.Condition()
        self._canceled = False
        self._broken = ""
        self._proven = False
        self._accepted = False
        self._call: grpc.Call | None = None
        self._channel: grpc.Channel | None = None
        self._reader: threading.Thread | None = None

    @property
    def is_accepted(self) -> bool:
        return self._accepted

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def start(self) -> None:
        self._accept_by_s = time.monotonic() + self._accept_timeout_ms / 1000
        channel = self._peers.acquire(self._peer)
        open_stream = rpc.call(channel, "ExchangeService", "Open")
        call = open_stream(self._requests(), metadata=self._introduction.metadata, wait_for_ready=True)
        with self._condition:
            self._call, self._channel = call, channel
            is_late = self._canceled
        if is_late:
            call.cancel()
            self._peers.release(channel)
        self._reader = threading.Thread(target=self._read, args=(call,), name=self._name(), daemon=True)
        self._reader.start()

    def send(self, element: Element) -> None:
        for piece in split(element) if isinstance(element, pa.Table) else (element,):
            size = size_of(piece)
            with self._condition:
                while not (self._canceled or self._broken or self._on_writable is not None or self._fits(size)):
                    self._condition.wait(self._wait_limit_s())
                self._check()
                self._queue.append((piece, size))
                self._queued_bytes += size
                self._condition.notify_all()

    def cancel(self) -> None:
        with self._condition:
            if self._canceled:
                return
            self._canceled = True
            self._queue.clear()
            self._condition.notify_all()
            call, channel = self._call, self._channel
        if call is not None and channel is not None:
            call.cancel()
            self._peers.release(channel)

    def join(self, timeout_s: float) -> bool:
        """Waits for the reading thread after cancel(). False when it is still running."""
        if self._reader is None:
            return True
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def has_room(self) -> bool:
        with self._condition:
            return self._canceled or bool(self._broken) or self._is_below_bound()

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        """Elements that have left the queue are in transit, and recorded by the receiver."""
        with self._condition:
            self._check()
            last = max(
                (place for place, queued in enumerate(self._queue) if isinstance(queued[0], Barrier)), default=-1
            )
            behind = [queued for place, (queued, _) in enumerate(self._queue) if place > last]
            self._queue.insert(last + 1, (barrier, size_of(barrier)))
            self._queued_bytes += size_of(barrier)
            self._condition.notify_all()
        return tuple(queued for queued in behind if not isinstance(queued, EndOfInput | LoopProbe))

    def _is_below_bound(self) -> bool:
        return self._queued_bytes < self._max_bytes and len(self._queue) < self._max_elements

    def _fits(self, size: int) -> bool:
        return not self._queue or (
            self._queued_bytes + size <= self._max_bytes and len(self._queue) < self._max_elements
        )

    def _wait_limit_s(self) -> float | None:
        """How long a blocked send may wait before it checks again; None when only the receiver's pace blocks it.

        The subtask cannot check the acceptance itself while it is blocked here, and nothing else ends the wait for an
        address at which no process answers. Raises ChannelBroken.
        """
        if self._accepted:
            return None
        left_s = self._accept_by_s - time.monotonic()
        if left_s <= 0:
            raise not_accepted(self._accept_timeout_ms)
        return left_s

    def _check(self) -> None:
        if self._canceled:
            raise ChannelClosed("the sending subtask is canceled")
        if self._broken:
            raise ChannelBroken(self._broken)

    def _requests(self) -> Iterator[StreamElement]:
        with self._condition:
            self._condition.wait_for(lambda: self._proven or self._canceled or self._broken)
            if not self._proven:
                return
        yield StreamElement(self._hello)
        while True:
            element = self._next()
            if element is None:
                return
            if not isinstance(element, pa.Table):
                yield StreamElement(element)
                continue
            try:
                message = to_message(element)
            except RecordTooLarge as error:
                self._break(str(error))
                return
            yield StreamElement(message)

    def _next(self) -> Element | None:
        """The next element; neighbouring small tables of one schema are sent as one."""
        with self._condition:
            while not self._queue and not self._canceled and not self._broken:
                self._condition.wait()
            if self._canceled or self._broken:
                return None
            was_full = not self._is_below_bound()
            element, size = self._queue.popleft()
            self._queued_bytes -= size
            parts = [element]
            while self._queue and _can_join(parts[0], self._queue[0][0], size + self._queue[0][1]):
                following, more = self._queue.popleft()
                self._queued_bytes -= more
                size += more
                parts.append(following)
            self._condition.notify_all()
            is_relieved = was_full and self._is_below_bound()
        if is_relieved and self._on_writable is not None:
            self._on_writable()
        return element if len(parts) == 1 else pa.concat_tables(parts)

    def _read(self, call: grpc.Call) -> None:
        reason = "the receiver ended it"
        try:
            self._introduction.wait_proven(call)
            with self._condition:
                self._proven = True
                self._condition.notify_all()
            for signal in call:  # type: ignore[attr-defined]
                self._accepted = self._accepted or signal.accepted
        except grpc.RpcError as error:
            reason = _sentence(error)
        self._break(reason)

    def _break(self, reason: str) -> None:
        with self._condition:
            if self._canceled or self._broken:
                return
            target = self._hello.target
            name = f"{target.vertex_id}[{target.subtask}]" if target is not None else "?"
            self._broken = f"the channel to {name} at {self._address} broke: {reason}"
            self._queue.clear()
            self._condition.notify_all()
        log.info("%s", self._broken)
        self._on_lost(self._broken)

    def _name(self) -> str:
        target = self._hello.target
        return f"output-{target.vertex_id}-{target.subtask}" if target is not None else "output"


def _can_join(first: Element, following: Element, size: int) -> bool:
    if not isinstance(first, pa.Table) or not isinstance(following, pa.Table) or size > MESSAGE_BYTES:
        return False
    return bool(first.num_rows and following.num_rows and first.schema.equals(following.schema))


def _sentence(error: grpc.RpcError) -> str:
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)
