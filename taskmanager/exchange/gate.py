"""InputGate: the input channels of one subtask, each a bounded queue.

One thread (the subtask's) polls and holds; others put. A full channel blocks whoever puts into it, and so, through
gRPC flow control, the sender. A held channel stays bounded like any other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from taskmanager.exchange.elements import ChannelId, Element, size_of
from taskmanager.exchange.errors import ChannelClosed

CHANNEL_BYTES = 16 * 1024 * 1024
CHANNEL_ELEMENTS = 64
POLL_BYTES = 8 * 1024 * 1024


class InputChannel:
    """One bounded queue of a gate. Only the gate touches it, under its lock."""

    def __init__(self, lock: threading.Lock) -> None:
        self.queue: deque[tuple[Element, int]] = deque()
        self.queued_bytes = 0
        self.held = False
        self.connected = False
        self.not_full = threading.Condition(lock)
        self.on_close: Callable[[], object] | None = None

    def has_room(self, size: int, max_bytes: int, max_elements: int) -> bool:
        """An element larger than the bound still fits an empty queue."""
        return not self.queue or (self.queued_bytes + size <= max_bytes and len(self.queue) < max_elements)

    def pop(self) -> Element:
        """The oldest element."""
        element, size = self.queue.popleft()
        self.queued_bytes -= size
        self.not_full.notify()
        return element

    @property
    def head(self) -> Element | None:
        """The oldest element if it may be taken now."""
        return self.queue[0][0] if self.queue and not self.held else None


class InputGate:
    """All input channels of one subtask; for a source, without channels, only the place where it waits.

    channels: the upstream subtasks, in the order in which the BarrierHandler numbers them.
    on_lost: called with a sentence, from any thread, when a connected channel broke while the gate was open.
    """

    def __init__(
        self,
        channels: Sequence[ChannelId],
        on_lost: Callable[[str], None] | None = None,
        *,
        max_bytes: int = CHANNEL_BYTES,
        max_elements: int = CHANNEL_ELEMENTS,
    ) -> None:
        self._ids = tuple(channels)
        self._indexes = {channel: index for index, channel in enumerate(self._ids)}
        self._on_lost = on_lost
        self._max_bytes, self._max_elements = max_bytes, max_elements
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._channels = [InputChannel(self._lock) for _ in self._ids]
        self._cursor = 0
        self._woken = False
        self._closed = False

    @property
    def channels(self) -> tuple[ChannelId, ...]:
        """The upstream subtasks; position = channel number."""
        return self._ids

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._closed

    def index_of(self, channel: ChannelId) -> int | None:
        """The number of a channel; None when the graph has no such channel."""
        return self._indexes.get(channel)

    def connect(self, channel: int, on_close: Callable[[], object] | None = None) -> bool:
        """Claims a channel for one sender. False when it has one already. Raises ChannelClosed.

        on_close: called once when the gate closes.
        """
        with self._lock:
            if self._closed:
                raise ChannelClosed("the receiving subtask has ended")
            if self._channels[channel].connected:
                return False
            self._channels[channel].connected = True
            self._channels[channel].on_close = on_close
            return True

    def lost(self, channel: int, reason: str) -> None:
        """The sender of a connected channel is gone. Quiet when the gate is closed."""
        with self._lock:
            quiet = self._closed
        if not quiet and self._on_lost is not None:
            source = self._ids[channel]
            self._on_lost(f"the channel from {source.vertex_id}[{source.subtask}] broke: {reason}")

    def put(self, channel: int, element: Element, is_canceled: Callable[[], bool] | None = None) -> None:
        """Appends an element; blocks while the channel is full. Raises ChannelClosed.

        is_canceled: looked at after every `wake_senders`; true gives the wait up with ChannelClosed.
        """
        size = size_of(element)
        with self._lock:
            target = self._channels[channel]
            while not self._closed and not target.has_room(size, self._max_bytes, self._max_elements):
                if is_canceled is not None and is_canceled():
                    raise ChannelClosed("the sending subtask is canceled")
                target.not_full.wait()
            if self._closed:
                raise ChannelClosed("the receiving subtask has ended")
            target.queue.append((element, size))
            target.queued_bytes += size
            if not target.held:
                self._ready.notify()

    def wake_senders(self, channel: int) -> None:
        """Lets a blocked put look at its `is_canceled`."""
        with self._lock:
            self._channels[channel].not_full.notify_all()

    def poll(self, timeout_s: float | None, max_bytes: int = POLL_BYTES) -> list[tuple[int, Element]]:
        """What may be taken now: one control element, or the records of all channels up to about `max_bytes`.

        Waits for an element, `wake`, `close` or the timeout; empty for the latter three. Held channels give nothing.
        """
        with self._lock:
            if not self._woken and not self._closed and not self._has_ready():
                self._ready.wait_for(lambda: self._woken or self._closed or self._has_ready(), timeout_s)
            self._woken = False
            return [] if self._closed else self._take(max_bytes)

    def wake(self) -> None:
        """Makes the present or the next poll return without waiting."""
        with self._lock:
            self._woken = True
            self._ready.notify()

    def hold(self, channel: int) -> None:
        """Takes nothing more from the channel until it is released."""
        with self._lock:
            self._channels[channel].held = True

    def release(self, channels: Sequence[int]) -> None:
        """Takes from the channels again."""
        with self._lock:
            for channel in channels:
                self._channels[channel].held = False

    def held(self) -> frozenset[int]:
        """Channels from which nothing is taken now."""
        with self._lock:
            return frozenset(number for number, channel in enumerate(self._channels) if channel.held)

    def close(self) -> None:
        """Drops what is queued and wakes everybody. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            closers = [channel.on_close for channel in self._channels if channel.on_close is not None]
            for channel in self._channels:
                channel.queue.clear()
                channel.queued_bytes = 0
                channel.not_full.notify_all()
            self._ready.notify_all()
        for closer in closers:
            closer()

    def queued_bytes(self) -> int:
        """Bytes in all channels together."""
        with self._lock:
            return sum(channel.queued_bytes for channel in self._channels)

    def _has_ready(self) -> bool:
        return any(channel.head is not None for channel in self._channels)

    def _take(self, max_bytes: int) -> list[tuple[int, Element]]:
        count = len(self._channels)
        order = [(self._cursor + step) % count for step in range(count)]
        self._cursor = (self._cursor + 1) % max(1, count)
        for index in order:  # barriers and ends first: they are rare, and others wait for them
            head = self._channels[index].head
            if head is not None and not isinstance(head, pa.Table):
                return [(index, self._channels[index].pop())]
        taken: list[tuple[int, Element]] = []
        room = max_bytes
        for index in order:
            channel = self._channels[index]
            while room > 0 and isinstance(channel.head, pa.Table):
                room -= channel.queue[0][1]
                taken.append((index, channel.pop()))
        return taken
