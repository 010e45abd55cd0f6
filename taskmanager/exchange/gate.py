"""InputGate: the input channels of one subtask, each a bounded queue.

One thread (the subtask's) polls and holds; others put. A full channel blocks whoever puts into it, and so, through
gRPC flow control, the sender. A held channel stays bounded like any other.

A back edge of a loop is never full and comes before the others: a loop that could not put its records back would never
empty the queues that it waits for, and what circles has to be worked off before more is let in. One element in
OUTSIDE_TURNS polls is taken from outside all the same, so that barriers come through while records circle.

While an unaligned checkpoint records what is in flight, a channel whose barrier is still to come takes SLUICE_BYTES
more than its bound: what is on its way, and the barrier behind it, must not wait for the subtask to process what is
queued.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from lockgate_proto.messages import Barrier

from taskmanager.barrier.recording import ChannelRecording
from taskmanager.exchange.element_queue import MEMORY_BYTES, ElementQueue, Stored
from taskmanager.exchange.elements import ChannelId, Element, size_of
from taskmanager.exchange.errors import ChannelClosed

CHANNEL_BYTES = 16 * 1024 * 1024
CHANNEL_ELEMENTS = 64
POLL_BYTES = 8 * 1024 * 1024
SLUICE_BYTES = 32 * 1024 * 1024  # a sender's queue and what a connection holds fit in
SLUICE_ELEMENTS = 4096
OUTSIDE_TURNS = 8


class InputChannel:
    """One queue of a gate, bounded unless it is a back edge's. Only the gate touches it, under its lock."""

    def __init__(self, lock: threading.Lock, is_feedback: bool, spill_folder: str | None) -> None:
        self.is_feedback = is_feedback
        self.queue = ElementQueue(MEMORY_BYTES if is_feedback else None, spill_folder)
        self.held = False
        self.connected = False
        self.not_full = threading.Condition(lock)
        self.on_close: Callable[[], object] | None = None
        self.on_room: Callable[[], object] | None = None

    def has_room(self, size: int, max_bytes: int, max_elements: int) -> bool:
        """An element larger than the bound still fits an empty queue."""
        if self.is_feedback or not self.queue:
            return True
        return self.queue.bytes + size <= max_bytes and len(self.queue) < max_elements

    def pop(self) -> tuple[Element, int]:
        """The oldest element and its size."""
        self.not_full.notify()
        return self.queue.popleft()

    @property
    def is_ready(self) -> bool:
        """Whether something may be taken now."""
        return bool(self.queue) and not self.held

    @property
    def is_records_next(self) -> bool:
        """Whether records may be taken now."""
        return not self.held and self.queue.is_records_next


class RunningRecording:
    """The channel state of one checkpoint while it comes in: fed under the gate's lock, awaited by the upload."""

    def __init__(self, recording: ChannelRecording) -> None:
        self.recording = recording
        self._is_over = threading.Event()
        self._is_canceled = False

    @property
    def is_over(self) -> bool:
        """Whether a wait would return at once."""
        return self._is_over.is_set()

    def end_if_over(self) -> bool:
        """Wakes who waits when nothing more is recorded."""
        if self.recording.is_complete or self.recording.has_overflowed:
            self._is_over.set()
        return self._is_over.is_set()

    def cancel(self) -> None:
        """Nobody needs it any more."""
        self._is_canceled = True
        self._is_over.set()

    def wait(self) -> ChannelRecording | None:
        """Until every channel has brought its barrier, or too much came; None when it was canceled."""
        self._is_over.wait()
        return None if self._is_canceled else self.recording


class InputGate:
    """All input channels of one subtask; for a source, without channels, only the place where it waits.

    channels: the upstream subtasks, in the order in which the BarrierHandler numbers them.
    on_lost: called with a sentence, from any thread, when a connected channel broke while the gate was open.
    on_barrier: called from any thread with an unaligned barrier that has been queued, so that it need not be found.
    feedback: the channels that are back edges; spill_folder: for what circles and is too much for memory.
    """

    def __init__(
        self,
        channels: Sequence[ChannelId],
        on_lost: Callable[[str], None] | None = None,
        *,
        max_bytes: int = CHANNEL_BYTES,
        max_elements: int = CHANNEL_ELEMENTS,
        on_barrier: Callable[[Barrier], None] = lambda _: None,
        feedback: frozenset[int] = frozenset(),
        spill_folder: str | None = None,
    ) -> None:
        self._on_barrier = on_barrier
        self._recordings: dict[int, RunningRecording] = {}
        self._ids = tuple(channels)
        self._indexes = {channel: index for index, channel in enumerate(self._ids)}
        self.feedback = feedback
        self._on_lost = on_lost
        self._max_bytes, self._max_elements = max_bytes, max_elements
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._channels = [
            InputChannel(self._lock, number in feedback, spill_folder) for number in range(len(self._ids))
        ]
        self._turn = 0
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

    def connect(
        self,
        channel: int,
        on_close: Callable[[], object] | None = None,
        on_room: Callable[[], object] | None = None,
    ) -> bool:
        """Claims a channel for one sender. False when it has one already. Raises ChannelClosed.

        on_close: called once when the gate closes. on_room: called whenever a channel that was full is so no more.
        """
        with self._lock:
            if self._closed:
                raise ChannelClosed("the receiving subtask has ended")
            if self._channels[channel].connected:
                return False
            self._channels[channel].connected = True
            self._channels[channel].on_close = on_close
            self._channels[channel].on_room = on_room
            return True

    def lost(self, channel: int, reason: str) -> None:
        """The sender of a connected channel is gone. Quiet when the gate is closed."""
        with self._lock:
            quiet = self._closed
        if not quiet and self._on_lost is not None:
            source = self._ids[channel]
            self._on_lost(f"the channel from {source.vertex_id}[{source.subtask}] broke: {reason}")

    def put(
        self,
        channel: int,
        element: Element,
        is_canceled: Callable[[], bool] | None = None,
        *,
        may_overflow: bool = False,
    ) -> None:
        """Appends an element; blocks while the channel is full. Raises ChannelClosed.

        is_canceled: looked at after every `wake_senders`; true gives the wait up with ChannelClosed.
        may_overflow: never blocks; for a sender that looks at `has_room` before it makes the next batch.
        """
        size = size_of(element)
        overtakes = isinstance(element, Barrier) and element.unaligned
        with self._lock:
            target = self._channels[channel]
            while not (self._closed or may_overflow or overtakes or self._fits(channel, size)):
                if is_canceled is not None and is_canceled():
                    raise ChannelClosed("the sending subtask is canceled")
                target.not_full.wait()
            if self._closed:
                raise ChannelClosed("the receiving subtask has ended")
            self._record(channel, target.queue.append(element, size), size)
            if not target.held:
                self._ready.notify()
        if isinstance(element, Barrier) and overtakes:
            self._on_barrier(element)

    def has_room(self, channel: int) -> bool:
        """Whether the channel is below its bound."""
        with self._lock:
            return self._is_below_bound(self._channels[channel])

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
            full = [channel for channel in self._channels if not self._is_below_bound(channel)]
            taken = [] if self._closed else self._take(max_bytes)
            relieved = [one.on_room for one in full if one.on_room is not None and self._is_below_bound(one)]
        for on_room in relieved:  # outside the lock: it takes that of the sender's gate
            on_room()
        return taken

    def wait(self, timeout_s: float | None) -> None:
        """Takes nothing: waits for `wake`, `close` or the timeout."""
        with self._lock:
            self._ready.wait_for(lambda: self._woken or self._closed, timeout_s)
            self._woken = False

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

    def record(self, checkpoint_id: int, delivered: frozenset[int]) -> RunningRecording:
        """Keeps, for an unaligned checkpoint, what is queued and what comes on each channel until its barrier.

        delivered: channels whose barrier has been taken. A closed gate gives one that is cancelled already.
        """
        with self._lock:
            recording = ChannelRecording(checkpoint_id, len(self._channels), delivered)
            for number, channel in enumerate(self._channels):
                for element, size in channel.queue:
                    recording.arrived(number, element, size)
                channel.not_full.notify_all()
            running = RunningRecording(recording)
            if self._closed:
                running.cancel()
            elif not running.end_if_over():
                self._recordings[checkpoint_id] = running
            return running

    def stop_recording(self, checkpoint_id: int) -> None:
        """Gives a recording up, if it still runs."""
        with self._lock:
            running = self._recordings.pop(checkpoint_id, None)
        if running is not None:
            running.cancel()

    def restore(self, channel: int, elements: Sequence[Element]) -> None:
        """Puts what a restored snapshot holds of a channel before everything that has arrived since."""
        with self._lock:
            target = self._channels[channel]
            for element in reversed(elements):
                size = size_of(element)
                target.queue.appendleft(element, size)
            self._ready.notify()

    def close(self) -> None:
        """Drops what is queued and wakes everybody. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for running in self._recordings.values():
                running.cancel()
            self._recordings.clear()
            closers = [channel.on_close for channel in self._channels if channel.on_close is not None]
            for channel in self._channels:
                channel.queue.clear()
                channel.not_full.notify_all()
            self._ready.notify_all()
        for closer in closers:
            closer()

    def has_ready(self) -> bool:
        """Whether a poll would give something now."""
        with self._lock:
            return self._has_ready()

    def queued_bytes(self) -> int:
        """Bytes in all channels together."""
        with self._lock:
            return sum(channel.queue.bytes for channel in self._channels)

    def _is_below_bound(self, channel: InputChannel) -> bool:
        if channel.is_feedback:
            return True
        return channel.queue.bytes < self._max_bytes and len(channel.queue) < self._max_elements

    def _fits(self, channel: int, size: int) -> bool:
        target = self._channels[channel]
        if any(one.recording.is_open(channel) for one in self._recordings.values()):
            return target.has_room(size, self._max_bytes + SLUICE_BYTES, self._max_elements + SLUICE_ELEMENTS)
        return target.has_room(size, self._max_bytes, self._max_elements)

    def _record(self, channel: int, element: Stored, size: int) -> None:
        """Shows a new element to every recording."""
        for checkpoint_id, running in list(self._recordings.items()):
            running.recording.arrived(channel, element, size)
            if running.end_if_over():
                del self._recordings[checkpoint_id]

    def _has_ready(self) -> bool:
        return any(channel.is_ready for channel in self._channels)

    def _take(self, max_bytes: int) -> list[tuple[int, Element]]:
        count = len(self._channels)
        self._turn += 1
        order = [(self._turn + step) % count for step in range(count)]
        for index in order:  # barriers and ends first: they are rare, and others wait for them
            channel = self._channels[index]
            if channel.is_ready and not channel.queue.is_records_next:
                return [(index, channel.pop()[0])]
        outside = [index for index in order if not self._channels[index].is_feedback]
        back = [index for index in order if self._channels[index].is_feedback]
        taken: list[tuple[int, Element]] = []
        if back and self._turn % OUTSIDE_TURNS == 0:
            self._take_from(next((one for one in outside if self._channels[one].is_records_next), None), 1, taken)
        room = max_bytes
        for index in (*back, *outside):
            room = self._take_from(index, room, taken)
        return taken

    def _take_from(self, index: int | None, room: int, taken: list[tuple[int, Element]]) -> int:
        """Moves records of a channel to `taken` until `room` bytes are exceeded; what is left of it."""
        while index is not None and room > 0 and self._channels[index].is_records_next:
            element, size = self._channels[index].pop()
            room -= size
            taken.append((index, element))
        return room
