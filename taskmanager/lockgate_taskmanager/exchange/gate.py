"""InputGate: the input channels of one subtask, each a bounded queue.

One thread (the subtask's) polls and holds; others put. A full channel blocks the thread that puts into it, and so,
through gRPC flow control, the sender. A held channel is bounded like any other.

A back edge of a loop is never full and has priority: a loop that could not put its records back would never empty the
queues that it waits for, and circulating records have to be processed before more enter. One poll in OUTSIDE_TURNS
still takes an element from outside, so that barriers get through while records circulate.

While an unaligned checkpoint records in-flight elements, a channel whose barrier has not arrived takes
RECORDING_EXTRA_BYTES more than its bound: elements in transit, and the barrier behind them, must not wait for the
subtask to process the queue.

Records of a snapshot at another parallelism come before everything else: newer records of their keys may arrive on any
channel.

In a job that may restart in part a channel outlives its sender: another attempt of it connects, and continues where
this side is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import Barrier, ExchangeSignal, SplitPosition

from lockgate_taskmanager.barrier.recording import ChannelRecording
from lockgate_taskmanager.exchange.batches import ArrivingBatches
from lockgate_taskmanager.exchange.element_queue import MEMORY_BYTES, ElementQueue, Stored
from lockgate_taskmanager.exchange.elements import ChannelId, Element, size_of
from lockgate_taskmanager.exchange.errors import CannotRejoin, ChannelClosed

CHANNEL_BYTES = 16 * 1024 * 1024
CHANNEL_ELEMENTS = 64
POLL_BYTES = 8 * 1024 * 1024
RECORDING_EXTRA_BYTES = 32 * 1024 * 1024  # the contents of a sender's queue and of a connection fit into it
SLUICE_ELEMENTS = 4096
OUTSIDE_TURNS = 8


@dataclass(frozen=True, slots=True)
class Fill:
    """What waits in a gate. fullest: the share of its bound that the fullest channel has reached."""

    size_bytes: int
    elements: int
    fullest: float


class InputChannel:
    """One queue of a gate, bounded unless it is a back edge. Accessed only by the gate, under its lock."""

    def __init__(
        self, lock: threading.Lock, is_feedback: bool, spill_folder: str | None, most_batch_bytes: int
    ) -> None:
        self.is_feedback = is_feedback
        self.queue = ElementQueue(MEMORY_BYTES if is_feedback else None, spill_folder)
        self.held = False
        self.sender: int | None = None  # the attempt of the connected sender
        self.batches = ArrivingBatches(most_batch_bytes)
        self.not_full = threading.Condition(lock)
        self.on_close: Callable[[], object] | None = None
        self.on_writable: Callable[[], object] | None = None

    def has_room(self, size: int, max_bytes: int, max_elements: int) -> bool:
        """An element larger than the bound still fits into an empty queue."""
        if self.is_feedback or not self.queue:
            return True
        return self.queue.bytes + size <= max_bytes and len(self.queue) < max_elements

    def pop(self) -> tuple[Element, int]:
        """The oldest element and its size."""
        self.not_full.notify()
        return self.queue.popleft()

    @property
    def is_ready(self) -> bool:
        """Whether an element may be taken now."""
        return bool(self.queue) and not self.held

    @property
    def next_is_records(self) -> bool:
        """Whether records may be taken now."""
        return not self.held and self.queue.next_is_records


class RunningRecording:
    """The channel state of one checkpoint while it is being recorded: filled under the gate's lock, awaited by the
    upload.
    """

    def __init__(self, recording: ChannelRecording) -> None:
        self.recording = recording
        self._is_over = threading.Event()
        self._is_canceled = False

    @property
    def is_over(self) -> bool:
        """Whether a wait would return at once."""
        return self._is_over.is_set()

    def finish_if_complete(self) -> bool:
        """Wakes waiters when the recording has ended."""
        if self.recording.is_complete or self.recording.has_overflowed:
            self._is_over.set()
        return self._is_over.is_set()

    def cancel(self) -> None:
        """The recording is not needed any more."""
        self._is_canceled = True
        self._is_over.set()

    def wait(self) -> ChannelRecording | None:
        """Until every channel has delivered its barrier, or the limit was exceeded; None when it was canceled."""
        self._is_over.wait()
        return None if self._is_canceled else self.recording


class InputGate:
    """All input channels of one subtask; for a source, without channels, only the place where it waits.

    channels: the upstream subtasks, in the order in which the BarrierHandler numbers them.
    on_lost: called with a sentence, from any thread, when a connected channel breaks while the gate is open.
    on_barrier: called from any thread with an unaligned barrier that was queued, so that it need not be searched for.
    feedback: the channels that are back edges; spill_folder: for circulating records that do not fit into memory.
    on_absent: in place of `on_lost` where another attempt of a sender may take its channel over; called with the number
    of the channel as well.
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
        on_absent: Callable[[int, str], None] | None = None,
    ) -> None:
        self._on_absent = on_absent
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
            InputChannel(self._lock, number in feedback, spill_folder, max_bytes) for number in range(len(self._ids))
        ]
        self._moved: deque[tuple[int, pa.Table, int]] = deque()  # channel, records, size
        self._is_replaying = False
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
        on_writable: Callable[[], object] | None = None,
        attempt: int = 0,
    ) -> bool:
        """Claims a channel for one sender. False when one of this attempt or a later one has it.

        Raises ChannelClosed, and CannotRejoin where another attempt of the sender could not continue.

        on_close: called once when the gate closes, or a later attempt of the sender takes the channel over.
        on_writable: called whenever a full channel has room again. attempt: of the sender.
        """
        with self._lock:
            if self._closed:
                raise ChannelClosed("the receiving subtask has ended")
            target = self._channels[channel]
            if target.sender is not None and target.sender >= attempt:
                return False
            if target.batches.is_torn:
                raise CannotRejoin("a batch larger than the channel had arrived in part when its sender was lost")
            target.sender, former = attempt, target.on_close
            target.batches.drop_part()
            target.not_full.notify_all()
            target.on_close, target.on_writable = on_close, on_writable
        if former is not None:
            former()
        return True

    def received(self, channel: int) -> ExchangeSignal:
        """The answer to a sender that has connected: where another attempt of it continues."""
        with self._lock:
            batches = self._channels[channel].batches
            return ExchangeSignal(accepted=True, received=batches.received, ended=batches.has_ended)

    @property
    def may_rejoin(self) -> bool:
        """Whether another attempt of a sender may take its channel over."""
        return self._on_absent is not None

    @property
    def is_connected(self) -> bool:
        """Whether every channel has had a sender."""
        with self._lock:
            return all(channel.sender is not None for channel in self._channels)

    def sender(self, channel: int) -> int | None:
        """The attempt of the sender that was connected last; None for none."""
        with self._lock:
            return self._channels[channel].sender

    def lost(self, channel: int, reason: str, attempt: int = 0) -> None:
        """The sender of a connected channel is gone. Ignored when the gate is closed, and when a later one is there.

        attempt: of the sender.
        """
        with self._lock:
            target = self._channels[channel]
            quiet = self._closed or (target.sender is not None and target.sender > attempt)
            if not quiet:
                target.batches.drop_part()
        source = self._ids[channel]
        text = f"the channel from {source.vertex_id}[{source.subtask}] broke: {reason}"
        if not quiet and self._on_absent is not None:
            self._on_absent(channel, text)
        elif not quiet and self._on_lost is not None:
            self._on_lost(text)

    def put(
        self,
        channel: int,
        element: Element,
        is_canceled: Callable[[], bool] | None = None,
        *,
        may_overflow: bool = False,
        attempt: int = 0,
        more: bool = False,
        read_to: Sequence[SplitPosition] = (),
    ) -> None:
        """Appends an element; blocks while the channel is full. Raises ChannelClosed.

        is_canceled: checked after every `wake_senders`; true ends the wait with ChannelClosed.
        may_overflow: never blocks; for a sender that checks `has_room` before it makes the next batch.
        attempt: of the sender. more, read_to: as in StreamElement.
        """
        size = size_of(element)
        overtakes = isinstance(element, Barrier) and element.unaligned
        with self._lock:
            target = self._channels[channel]
            while not (
                self._closed or may_overflow or overtakes or self._fits(channel, size + target.batches.waiting_bytes)
            ):
                if is_canceled is not None and is_canceled():
                    raise ChannelClosed("the sending subtask is canceled")
                target.not_full.wait()
            if self._closed:
                raise ChannelClosed("the receiving subtask has ended")
            if target.sender is not None and target.sender > attempt:
                target.not_full.notify_all()  # this one may have been woken in the place of another
                raise ChannelClosed("another attempt of the sender has taken its place")
            for piece, piece_size in target.batches.arrived(element, size, more, read_to):
                self._record(channel, target.queue.append(piece, piece_size), piece_size)
            if not target.held:
                self._ready.notify()
        if isinstance(element, Barrier) and overtakes:
            self._on_barrier(element)

    def has_room(self, channel: int) -> bool:
        """Whether the channel is below its bound."""
        with self._lock:
            return self._is_below_bound(self._channels[channel])

    def wake_senders(self, channel: int) -> None:
        """Makes a blocked put check its `is_canceled`."""
        with self._lock:
            self._channels[channel].not_full.notify_all()

    def poll(self, timeout_s: float | None, max_bytes: int = POLL_BYTES) -> list[tuple[int, Element]]:
        """What may be taken now: one control element, or the records of all channels up to about `max_bytes`.

        Waits for an element, `wake`, `close` or the timeout; empty for the latter three. Held channels are skipped.
        """
        with self._lock:
            if not self._woken and not self._closed and not self._has_ready():
                self._ready.wait_for(lambda: self._woken or self._closed or self._has_ready(), timeout_s)
            self._woken = False
            self._is_replaying = bool(self._moved)
            full = [channel for channel in self._channels if not self._is_below_bound(channel)]
            taken = [] if self._closed else self._take(max_bytes)
            relieved = [
                channel.on_writable
                for channel in full
                if channel.on_writable is not None and self._is_below_bound(channel)
            ]
        for on_writable in relieved:  # outside the lock: it takes the lock of the sender's gate
            on_writable()
        return taken

    def wait(self, timeout_s: float | None) -> None:
        """Takes nothing: waits for `wake`, `close` or the timeout."""
        with self._lock:
            self._ready.wait_for(lambda: self._woken or self._closed, timeout_s)
            self._woken = False

    def wake(self) -> None:
        """Makes the current or the next poll return without waiting."""
        with self._lock:
            self._woken = True
            self._ready.notify()

    def hold(self, channel: int) -> None:
        """Takes nothing from the channel until it is released."""
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
        """Records, for an unaligned checkpoint, the queued elements and those that arrive on each channel until its
        barrier.

        delivered: channels whose barrier has been taken. A closed gate returns a recording that is already cancelled.
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
            elif not running.finish_if_complete():
                self._recordings[checkpoint_id] = running
            return running

    def stop_recording(self, checkpoint_id: int) -> None:
        """Ends a recording, if it is still running."""
        with self._lock:
            running = self._recordings.pop(checkpoint_id, None)
        if running is not None:
            running.cancel()

    def restore(self, channel: int, elements: Sequence[Element]) -> None:
        """Puts the channel state of a restored snapshot before everything that has arrived since."""
        with self._lock:
            target = self._channels[channel]
            for element in reversed(elements):
                size = size_of(element)
                target.queue.appendleft(element, size)
            self._ready.notify()

    def put_first(self, records: Sequence[tuple[int, pa.Table]]) -> None:
        """Records that are taken before anything that is or arrives in any channel, in order.

        They are in no recording: until `has_moved` is False, no snapshot may record what is in flight.
        """
        with self._lock:
            self._moved.extend((channel, table, size_of(table)) for channel, table in records)
            self._is_replaying = bool(self._moved)
            self._ready.notify()

    @property
    def has_moved(self) -> bool:
        """Whether records of `put_first` have not been taken yet."""
        return bool(self._moved)

    @property
    def is_replaying(self) -> bool:
        """Whether records of `put_first` have not been taken and processed yet: the next poll comes after that."""
        return self._is_replaying

    def close(self) -> None:
        """Drops the queues and wakes all waiters. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for running in self._recordings.values():
                running.cancel()
            self._recordings.clear()
            self._moved.clear()
            closers = [channel.on_close for channel in self._channels if channel.on_close is not None]
            for channel in self._channels:
                channel.queue.clear()
                channel.not_full.notify_all()
            self._ready.notify_all()
        for closer in closers:
            closer()

    def has_ready(self) -> bool:
        """Whether a poll would return an element now."""
        with self._lock:
            return self._has_ready()

    def queued_bytes(self) -> int:
        """Bytes in all channels together."""
        with self._lock:
            return sum(channel.queue.bytes for channel in self._channels) + self._moved_bytes()

    def fill(self) -> Fill:
        """What waits now. Back edges have no bound and do not count as full."""
        with self._lock:
            sizes = [(channel.queue.bytes, len(channel.queue)) for channel in self._channels]
            moved = (self._moved_bytes(), len(self._moved))
        bounded = [size for number, size in enumerate(sizes) if number not in self.feedback]
        shares = (max(size / self._max_bytes, count / self._max_elements) for size, count in bounded)
        every = [*sizes, moved]
        return Fill(sum(size for size, _ in every), sum(count for _, count in every), max(shares, default=0.0))

    def _is_below_bound(self, channel: InputChannel) -> bool:
        if channel.is_feedback:
            return True
        return channel.queue.bytes < self._max_bytes and len(channel.queue) < self._max_elements

    def _fits(self, channel: int, size: int) -> bool:
        target = self._channels[channel]
        if any(recording.recording.is_open(channel) for recording in self._recordings.values()):
            return target.has_room(size, self._max_bytes + RECORDING_EXTRA_BYTES, self._max_elements + SLUICE_ELEMENTS)
        return target.has_room(size, self._max_bytes, self._max_elements)

    def _record(self, channel: int, element: Stored, size: int) -> None:
        """Passes a new element to every recording."""
        for checkpoint_id, running in list(self._recordings.items()):
            running.recording.arrived(channel, element, size)
            if running.finish_if_complete():
                del self._recordings[checkpoint_id]

    def _moved_bytes(self) -> int:
        return sum(size for _, _, size in self._moved)

    def _has_ready(self) -> bool:
        return bool(self._moved) or any(channel.is_ready for channel in self._channels)

    def _take(self, max_bytes: int) -> list[tuple[int, Element]]:
        if self._moved:
            return self._take_moved(max_bytes)
        count = len(self._channels)
        self._turn += 1
        order = [(self._turn + step) % count for step in range(count)]
        for index in order:  # barriers and ends first: they are rare, and other subtasks wait for them
            channel = self._channels[index]
            if channel.is_ready and not channel.queue.next_is_records:
                return [(index, channel.pop()[0])]
        outside = [index for index in order if not self._channels[index].is_feedback]
        back = [index for index in order if self._channels[index].is_feedback]
        taken: list[tuple[int, Element]] = []
        if back and self._turn % OUTSIDE_TURNS == 0:
            self._take_from(next((index for index in outside if self._channels[index].next_is_records), None), 1, taken)
        room = max_bytes
        for index in (*back, *outside):
            room = self._take_from(index, room, taken)
        return taken

    def _take_moved(self, room: int) -> list[tuple[int, Element]]:
        taken: list[tuple[int, Element]] = []
        while self._moved and room > 0:
            channel, table, size = self._moved.popleft()
            room -= size
            taken.append((channel, table))
        return taken

    def _take_from(self, index: int | None, room: int, taken: list[tuple[int, Element]]) -> int:
        """Moves records of a channel to `taken` until `room` bytes are exceeded; returns the room that is left."""
        while index is not None and room > 0 and self._channels[index].next_is_records:
            element, size = self._channels[index].pop()
            room -= size
            taken.append((index, element))
        return room
