"""In-flight elements at the time of a snapshot: recorded, stored with it, and put back on restore.

In the mode UNALIGNED these are the elements that barriers overtake, at the head of a loop those on its back edges.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from lockgate_common.storage import file_name
from lockgate_proto.codec import decode, encode
from lockgate_proto.messages import (
    Barrier,
    ChannelSide,
    ChannelState,
    RecordBatch,
    StreamElement,
    SubtaskId,
    SubtaskState,
    Watermark,
)

from lockgate_taskmanager.exchange.element_queue import Spilled, Stored, loaded
from lockgate_taskmanager.exchange.elements import ChannelId, Element, from_message, split, to_message
from lockgate_taskmanager.exchange.gate import InputGate, RunningRecording
from lockgate_taskmanager.runtime.moved_shares import MovedShares, shares_of
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.state.backend import Backend, SnapshotWriter, load, make_backend
from lockgate_taskmanager.task.program import Canceled, ProgramContext, SnapshotTooLarge, StateUnreadable

_LENGTH = struct.Struct("<I")

Peer = tuple[str, int]
"""Vertex id and subtask index of the other end of a channel."""


@dataclass(frozen=True, slots=True)
class FrozenChannels:
    """The in-flight elements of every channel; tables are shared, not copied.

    recording: of the input channels, possibly still running; outputs: the elements that waited to be sent.
    """

    checkpoint_id: int
    backend: Backend
    gate: InputGate
    recording: RunningRecording
    outputs: Mapping[Peer, tuple[Element, ...]]

    def persist(self) -> tuple[ChannelState, ...]:
        """Waits for the recording and stores everything, one channel after the other.

        Raises SnapshotTooLarge, OSError, or Canceled when it is not needed any more; leaves nothing behind then.
        """
        writer = self.backend.writer(self.checkpoint_id)
        found: list[ChannelState] = []
        try:
            for (vertex, subtask), elements in self.outputs.items():
                found += _store(writer, ChannelSide.OUTPUT_CHANNEL, ChannelId(vertex, subtask), elements)
            for number, elements in self._inputs().items():
                states = _store(writer, ChannelSide.INPUT_CHANNEL, self.gate.channels[number], elements)
                found += (replace(state, feedback=number in self.gate.feedback) for state in states)
        except BaseException:
            writer.undo()
            raise
        return tuple(found)

    def _inputs(self) -> dict[int, tuple[Stored, ...]]:
        recording = self.recording.wait()
        if recording is None:
            raise Canceled(f"checkpoint {self.checkpoint_id} was aborted")
        if recording.has_overflowed:
            advice = "let fewer records circulate in the loop at a time"
            if not self.gate.feedback:
                advice = "the mode 'exactly_once' holds its senders back instead"
            raise SnapshotTooLarge(
                f"more than {recording.limit_bytes >> 20} MiB are in flight to one subtask; {advice}"
            )
        return recording.channels()


def _store(
    writer: SnapshotWriter, side: ChannelSide, channel: ChannelId, elements: tuple[Stored, ...]
) -> Iterator[ChannelState]:
    pieces = [piece for element in elements for piece in _pieces(loaded(element))]
    if pieces:
        name = f"{'in' if side is ChannelSide.INPUT_CHANNEL else 'out'}-{channel.vertex_id}-{channel.subtask}"
        rows = sum(element.num_rows for element in elements if isinstance(element, pa.Table))
        rows += sum(element.rows for element in elements if isinstance(element, Spilled))
        handle = writer.store(name, pa.py_buffer(b"".join(pieces)))
        yield ChannelState(side, channel.vertex_id, channel.subtask, handle, len(pieces), rows)


def encode_element(element: Element) -> bytes:
    """A record table or watermark in its stored form: its length in 4 bytes, little endian, then a StreamElement."""
    assert isinstance(element, pa.Table | Watermark)
    data = encode(StreamElement(to_message(element) if isinstance(element, pa.Table) else element))
    return _LENGTH.pack(len(data)) + data


def decode_elements(data: pa.Buffer) -> Iterator[Element]:
    """The elements of one channel, in order. Raises StateUnreadable."""
    try:
        yield from _decoded(memoryview(data))
    except (pa.ArrowInvalid, struct.error, ValueError) as error:
        raise StateUnreadable(f"the state of a channel cannot be read: {error}") from error


def _decoded(view: memoryview) -> Iterator[Element]:
    place = 0
    while place < len(view):
        (length,) = _LENGTH.unpack_from(view, place)
        place += _LENGTH.size
        element = decode(StreamElement, bytes(view[place : place + length])).element
        place += length
        if isinstance(element, RecordBatch):
            yield from_message(element)
        elif isinstance(element, Watermark):
            yield element
        else:
            raise StateUnreadable(
                f"the state of a channel holds {type(element).__name__}, which is not allowed in channel state"
            )


class InFlight:
    """All channel state handling of one subtask. Used by its thread only."""

    def __init__(self, subtask: SubtaskId, gate: InputGate, backend: Backend, shares: MovedShares) -> None:
        self._name = f"{subtask.vertex_id}[{subtask.subtask}]"
        self._gate, self._backend, self._shares = gate, backend, shares
        self._begun: dict[int, tuple[RunningRecording, Mapping[Peer, tuple[Element, ...]]]] = {}

    def record(self, checkpoint_id: int, delivered: frozenset[int]) -> None:
        """Starts recording the input channels except those in `delivered`, whose barrier has arrived."""
        self._begun[checkpoint_id] = (self._gate.record(checkpoint_id, delivered), {})

    def overtake(self, outputs: OutputSet, barrier: Barrier) -> None:
        """Sends an unaligned barrier ahead of the elements in the output queues, and keeps a copy of these."""
        recording, _ = self._begun[barrier.checkpoint_id]
        self._begun[barrier.checkpoint_id] = (recording, outputs.overtake(barrier))

    def take(self, checkpoint_id: int) -> FrozenChannels | None:
        """The in-flight elements, for the upload; None for an aligned checkpoint."""
        if checkpoint_id not in self._begun:
            return None
        recording, outputs = self._begun.pop(checkpoint_id)
        return FrozenChannels(checkpoint_id, self._backend, self._gate, recording, outputs)

    def drop(self, checkpoint_id: int) -> None:
        """Not needed any more: an upload that waits for the recording ends."""
        self._gate.stop_recording(checkpoint_id)
        self._begun.pop(checkpoint_id, None)

    def restore(self, state: SubtaskState | None, outputs: OutputSet) -> None:
        """Puts in-flight elements back before anything new is processed or sent. Raises StateUnreadable, OSError."""
        queued: dict[int, list[Element]] = {}
        for channel_state in state.channels if state is not None else ():
            assert channel_state.handle is not None
            peer = (channel_state.vertex_id, channel_state.subtask)
            elements = tuple(decode_elements(load(channel_state.handle)))
            if channel_state.side is ChannelSide.OUTPUT_CHANNEL:
                is_there = outputs.resend(peer, elements)
            else:
                channel = self._gate.index_of(ChannelId(*peer))
                is_there = channel is not None
                if channel is not None and channel_state.moved:
                    share = self._shares.of(channel_state.vertex_id, elements)
                    self._gate.put_first([(channel, table) for table in share])
                elif channel is not None:
                    queued.setdefault(channel, []).extend(elements)
            if not is_there:
                raise StateUnreadable(
                    f"the snapshot holds records in flight between {self._name} and "
                    f"{channel_state.vertex_id}[{channel_state.subtask}], "
                    f"and the job has no such channel; start from a savepoint, which has no channel state"
                )
        for channel, elements_of_channel in queued.items():
            self._gate.restore(channel, elements_of_channel)


def in_flight_of(context: ProgramContext, gate: InputGate, overtakes: bool) -> InFlight | None:
    """For one subtask; its channel state is stored with the state of its operators. None if it never has any.

    overtakes: the job's barriers may overtake records.
    """
    is_restored = context.restore is not None and bool(context.restore.channels)
    if not (overtakes or is_restored or gate.feedback):
        return None
    subtask = context.subtask
    assert subtask.attempt is not None
    prefix = f"a{subtask.attempt.attempt}-{file_name(subtask.vertex_id)}-{subtask.subtask}-channel"
    backend = make_backend(context.graph.state_backend, context.checkpoint_directory, prefix, context.copied_run)
    return InFlight(subtask, gate, backend, shares_of(context.graph, subtask, context.parallelism))


def _pieces(element: Element) -> Iterator[bytes]:
    """The element in its stored form; nothing for the empty tables that only carry a schema."""
    if isinstance(element, pa.Table):
        if element.num_rows:
            yield from (encode_element(part) for part in split(element))
    elif isinstance(element, Watermark):
        yield encode_element(element)
