"""OutputSet: the output channels of one subtask, addressed by edge and downstream subtask."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from lockgate_proto.messages import Barrier, SplitRange

from lockgate_taskmanager.exchange.elements import BatchPiece, Element
from lockgate_taskmanager.exchange.outputs import ACCEPT_TIMEOUT_MS, OutputChannel, RemoteOutput, not_accepted
from lockgate_taskmanager.exchange.replay_log import Kept
from lockgate_taskmanager.task.program import Emission


class OutputSet:
    """channels: by downstream (vertex id, subtask). edge_targets: edge index to downstream vertex id."""

    def __init__(self, channels: Mapping[tuple[str, int], OutputChannel], edge_targets: Mapping[int, str]) -> None:
        self._channels = dict(channels)
        self._edge_targets = dict(edge_targets)
        self._pending: list[OutputChannel] = []
        self._deadline_ms = 0

    def start(self, now_ms: int) -> None:
        """Connects every channel; does not wait for the receivers. Raises ChannelBroken."""
        self._deadline_ms = now_ms + ACCEPT_TIMEOUT_MS
        for channel in self._channels.values():
            channel.start()
        self._pending = [channel for channel in self._channels.values() if not channel.is_accepted]

    def check_accepted(self, now_ms: int) -> bool:
        """True when every receiver has accepted its channel. Raises ChannelBroken when one takes too long."""
        if self._pending:
            self._pending = [channel for channel in self._pending if not channel.is_accepted]
            for channel in self._pending:
                channel.require_intact()
            if self._pending and now_ms > self._deadline_ms:
                raise not_accepted(ACCEPT_TIMEOUT_MS)
        return not self._pending

    def emit(self, emissions: Sequence[Emission], ranges: Sequence[SplitRange] = ()) -> None:
        """Sends a batch to downstream subtasks; blocks while one is behind. As OutputChannel.send.

        ranges: of a source, what was read for it.
        """
        if not ranges:
            for emission in emissions:
                self._channels[self._edge_targets[emission.edge], emission.target].send(emission.table)
            return
        ways = [(self._edge_targets[emission.edge], emission.target) for emission in emissions]
        last = {way: number for number, way in enumerate(ways)}
        read = tuple(ranges)
        for number, (way, emission) in enumerate(zip(ways, emissions, strict=True)):
            channel, is_last = self._channels[way], last[way] == number
            channel.send(emission.table, BatchPiece(not is_last, read))

    def broadcast(self, element: Element) -> None:
        """Sends to every downstream subtask, once each."""
        for channel in self._channels.values():
            channel.send(element)

    def send_within(self, vertices: Collection[str], element: Element) -> None:
        """Sends to every downstream subtask of some vertices."""
        for (vertex_id, _), channel in self._channels.items():
            if vertex_id in vertices:
                channel.send(element)

    def has_room(self) -> bool:
        """False while a receiver is behind. For elastic channels, which do not block."""
        return all(channel.has_room() for channel in self._channels.values())

    def overtake(self, barrier: Barrier) -> dict[tuple[str, int], tuple[Element, ...]]:
        """Sends an unaligned barrier to every downstream subtask; returns the overtaken elements for each."""
        return {target: channel.overtake(barrier) for target, channel in self._channels.items()}

    def resend(self, target: tuple[str, int], elements: Sequence[Element]) -> bool:
        """Sends restored in-flight elements to one downstream subtask. False when there is no such channel."""
        channel = self._channels.get(target)
        if channel is None:
            return False
        for element in elements:
            channel.send(element)
        return True

    def received(self) -> tuple[Mapping[str, int], ...]:
        """Of an accepted set: how far each receiver has had the splits of an earlier attempt of this subtask."""
        return tuple(channel.received for channel in self._remote())

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: no receiver begins again before it."""
        for channel in self._remote():
            channel.completed(checkpoint_id)

    def to(self, slot: int) -> tuple[RemoteOutput, ...]:
        """The channels to subtasks in this slot of another task manager."""
        found = (channel for (_, index), channel in self._channels.items() if index == slot)
        return tuple(channel for channel in found if isinstance(channel, RemoteOutput))

    def kept(self) -> tuple[tuple[int, Kept], ...]:
        """(slot of the receiver, what is kept for it) of every channel with a log. From any thread."""
        found = ((channel.target, channel.kept) for channel in self._remote())
        return tuple((target.subtask, kept) for target, kept in found if target is not None and kept is not None)

    def _remote(self) -> Iterable[RemoteOutput]:
        return (channel for channel in self._channels.values() if isinstance(channel, RemoteOutput))

    def queued_bytes(self) -> int:
        """What waits to be sent to other task managers. From any thread."""
        return sum(channel.queued_bytes for channel in self._channels.values())

    def remote_count(self) -> int:
        """How many of the channels lead to other task managers."""
        return sum(1 for _ in self._remote())

    def cancel(self) -> None:
        """Closes every channel and ends a blocked send. From any thread."""
        for channel in self._channels.values():
            channel.cancel()
