"""What one channel has carried since the newest completed checkpoint, so that its receiver can begin again there.

Flink's paper asks for it where only the failed part of a dataflow restarts ("Lightweight Asynchronous Snapshots for
Distributed Dataflows", arXiv 1506.08603, section 5): whoever runs on sends its output again from the snapshot on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import Barrier, EndOfInput, SplitPosition, Watermark

from lockgate_taskmanager.exchange.elements import CONTROL_BYTES, Element


@dataclass(frozen=True, slots=True)
class Sent:
    """One element of a channel. size: in bytes, see size_of. more, read_to: as in StreamElement."""

    element: Element
    size: int
    more: bool = False
    read_to: tuple[SplitPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """What a log holds: so many of at most max_bytes. since: the earliest checkpoint from which it may hold everything;
    0 while it is not known to be too small.
    """

    size_bytes: int
    max_bytes: int
    since: int


class ReplayLog:
    """Pure. Of one channel. max_bytes: what is more is forgotten, up to the next barrier.

    base: the checkpoint that the sender starts from, 0 for none.
    """

    def __init__(self, max_bytes: int, base: int = 0) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: deque[Sent] = deque()
        self._base: int | None = base  # the checkpoint whose barrier comes just before the entries; None after a gap
        self._has_gap = False  # nothing is kept until the next barrier
        self._barrier = base  # the newest that has passed
        self._since = 0  # see Kept
        # From before the entries: what a receiver that begins again has to know all the same.
        self._prologues: list[pa.Schema] = []
        self._watermark: Sent | None = None
        self._end: Sent | None = None

    @property
    def kept(self) -> Kept:
        """From any thread."""
        return Kept(self._bytes, self._max_bytes, self._since)

    def has_room(self, size: int) -> bool:
        """Whether an element can be added without a gap."""
        return self._bytes + size <= self._max_bytes

    def add(self, sent: Sent) -> None:
        """The next element of the channel."""
        if isinstance(sent.element, Barrier):
            self._has_gap, self._barrier = False, sent.element.checkpoint_id
        elif self._has_gap or not self.has_room(sent.size):
            self._forget(sent)
            return
        self._entries.append(sent)
        self._bytes += sent.size

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: nothing from before its barrier will be asked for."""
        places = (place for place, sent in enumerate(self._entries) if _is_barrier(sent, checkpoint_id))
        before = next(places, None)
        if before is not None:
            for _ in range(before + 1):
                self._pop()
            self._base, self._since = checkpoint_id, 0

    def since(self, checkpoint_id: int) -> tuple[Sent, ...] | None:
        """What a receiver that begins at this completed checkpoint has to get, in order; None when it is not known.

        0: from the beginning of the job. Without barriers: none of a later checkpoint is complete.
        """
        self.completed(checkpoint_id)
        if self._base != checkpoint_id or self._has_gap:
            return None
        rest = tuple(sent for sent in self._entries if not isinstance(sent.element, Barrier))
        prologues = (Sent(schema.empty_table(), CONTROL_BYTES) for schema in self._prologues)
        before = (known for known in (self._watermark, self._end) if known is not None)
        return (*prologues, *before, *rest)

    def _forget(self, sent: Sent) -> None:
        """There is too much since the last checkpoint: what follows it can no longer be sent again."""
        while self._entries:
            self._pop()
        self._passed(sent)
        self._base, self._has_gap, self._since = None, True, self._barrier + 1

    def _pop(self) -> Sent:
        sent = self._entries.popleft()
        self._bytes -= sent.size
        self._passed(sent)
        return sent

    def _passed(self, sent: Sent) -> None:
        match sent.element:
            case pa.Table() as table if not table.num_rows:
                if not any(known.equals(table.schema) for known in self._prologues):
                    self._prologues.append(table.schema)
            case Watermark():
                self._watermark = sent
            case EndOfInput():
                self._end = sent


def _is_barrier(sent: Sent, checkpoint_id: int) -> bool:
    return isinstance(sent.element, Barrier) and sent.element.checkpoint_id == checkpoint_id
