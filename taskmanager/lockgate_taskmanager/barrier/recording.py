"""The channel state of one unaligned snapshot, as Chandy and Lamport define it, and the log of a loop's back edges.

For each input channel: the elements that were queued when the state was frozen, and those that arrive after that, up to
the channel's barrier. The sender sent them before its own snapshot and the receiver's snapshot does not cover them, so
they have to be stored. Elements behind the barrier belong to the next snapshot.

In an aligned snapshot only the back edges of loops have channel state: Carbone et al. call it their log ("Lightweight
Asynchronous Snapshots for Distributed Dataflows", arXiv 1506.08603, section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockgate_proto.messages import Barrier, EndOfInput, LoopProbe

DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024


class ChannelRecording:
    """Pure. Receives every element of every channel in arrival order, queued elements first.

    delivered: channels whose barrier was taken before; nothing of them is kept. limit_bytes: for all channels together.
    """

    def __init__(
        self, checkpoint_id: int, channel_count: int, delivered: Iterable[int], limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self._elements: list[list[Any]] = [[] for _ in range(channel_count)]
        self._open = set(range(channel_count)) - set(delivered)
        self.limit_bytes, self._bytes = limit_bytes, 0

    @property
    def is_complete(self) -> bool:
        """True when every channel has delivered its barrier."""
        return not self._open

    @property
    def has_overflowed(self) -> bool:
        """True when the limit was exceeded: nothing more is kept, and the snapshot has failed."""
        return self._bytes > self.limit_bytes

    def is_open(self, channel: int) -> bool:
        """Whether the channel's barrier has not arrived yet."""
        return channel in self._open

    def arrived(self, channel: int, element: Any, size_bytes: int) -> None:
        """The next element of a channel.

        Records and watermarks are kept; ends of input and probes are sent again on restore.
        """
        if channel not in self._open:
            return
        if isinstance(element, Barrier):
            # a barrier of a newer checkpoint: this one's was lost on the way
            if element.checkpoint_id >= self.checkpoint_id:
                self._open.discard(channel)
            return
        if isinstance(element, EndOfInput | LoopProbe):
            return
        self._bytes += size_bytes
        if self.has_overflowed:
            self._elements = [[] for _ in self._elements]
        else:
            self._elements[channel].append(element)

    def channels(self) -> dict[int, tuple[Any, ...]]:
        """Elements by channel, in order, for channels that have any."""
        return {number: tuple(found) for number, found in enumerate(self._elements) if found}
