"""The channel state of one unaligned snapshot, as Chandy and Lamport define it, and the log of a loop's back edges.

Of each input channel: what had arrived and was not yet processed when the state was frozen, and what arrives after
that, up to the channel's barrier. All of it was sent before the sender's own snapshot and is missing in the
receiver's, so it has to be kept; what comes behind the barrier belongs to the next snapshot.

Of an aligned snapshot only the back edges of loops have such a state: Carbone et al. call it their log ("Lightweight
Asynchronous Snapshots for Distributed Dataflows", arXiv 1506.08603, section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockgate_proto.messages import Barrier, EndOfInput, LoopProbe

DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024


class ChannelRecording:
    """Pure. Fed with every element of every channel in the order of arrival, first with what is queued.

    delivered: channels whose barrier was taken before, of which nothing is kept. limit_bytes: of all channels together.
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
        """True when every channel has brought its barrier."""
        return not self._open

    @property
    def has_overflowed(self) -> bool:
        """True when more came than may be kept: nothing more is, and the snapshot has failed."""
        return self._bytes > self.limit_bytes

    def is_open(self, channel: int) -> bool:
        """Whether the channel's barrier is still to come."""
        return channel in self._open

    def arrived(self, channel: int, element: Any, size_bytes: int) -> None:
        """The next element of a channel: records and watermarks are kept; ends of input and probes come anew."""
        if channel not in self._open:
            return
        if isinstance(element, Barrier):
            if element.checkpoint_id >= self.checkpoint_id:  # a newer one: its own was lost on the way
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
        """Channel to its elements in order, for channels that have any."""
        return {number: tuple(found) for number, found in enumerate(self._elements) if found}
