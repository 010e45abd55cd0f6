"""What a channel to another task manager does with the elements that it is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from lockgate_common.amounts import size_text
from lockgate_proto.messages import Barrier, EndOfInput, ExchangeSignal, LoopProbe, SplitRange

from lockgate_taskmanager.exchange.elements import MESSAGE_BYTES, BatchPiece, Element, sendable, size_of
from lockgate_taskmanager.exchange.errors import CannotRejoin
from lockgate_taskmanager.exchange.replay_log import Kept, ReplayLog, Sent


class Outbox:
    """Pure. A bounded queue, and for a channel that outlives its receiver a log of what has gone through it.

    message_bytes: of records, about so many are sent at a time.
    broken: why the channel is over; where there is a log it waits for another attempt of its receiver.
    """

    def __init__(
        self, max_bytes: int, max_elements: int, log: ReplayLog | None = None, message_bytes: int = MESSAGE_BYTES
    ) -> None:
        self._max_bytes, self._max_elements, self._message_bytes = max_bytes, max_elements, message_bytes
        self._log = log
        self.queue: deque[Sent] = deque()
        self.queued_bytes = 0
        self.broken = ""
        self.received: Mapping[str, int] = {}
        self._has_ended = False

    @property
    def is_over(self) -> bool:
        """Nothing that is added will ever arrive."""
        return bool(self.broken) and self._log is None

    @property
    def kept(self) -> Kept | None:
        """What its log holds; None without one. From any thread."""
        log = self._log
        return log.kept if log is not None else None

    @property
    def is_below_bound(self) -> bool:
        """Whether the queue may take more."""
        return self.queued_bytes < self._max_bytes and len(self.queue) < self._max_elements

    def fits(self, size: int) -> bool:
        """Whether an element of this size need not wait. An empty queue takes any."""
        if self.broken and self._log is not None:
            return self._log.has_room(size)
        return not self.queue or (self.queued_bytes + size <= self._max_bytes and len(self.queue) < self._max_elements)

    def pieces(self, element: Element, place: BatchPiece) -> Iterable[Sent]:
        """An element as it is to be added, one after the other: a large table in parts. Raises RecordTooLarge."""
        found = sendable(element, self._message_bytes) if isinstance(element, pa.Table) else [element]
        if self._log is None:  # whoever receives it is lost with the whole job, and needs no positions
            yield from (Sent(piece, size_of(piece)) for piece in found)
            return
        for piece in found[:-1]:
            yield Sent(piece, size_of(piece), True)
        yield Sent(found[-1], size_of(found[-1]), place.more, place.read_to)

    def add(self, sent: Sent, *, is_had: bool = False) -> None:
        """is_had: the receiver has had it, and only another attempt of the receiver may need it."""
        if self._log is not None:
            self._log.add(sent)
        is_known = is_had or (self._has_ended and not isinstance(sent.element, Barrier))
        if not (self.broken or is_known):
            self.queue.append(sent)
            self.queued_bytes += sent.size

    def take(self) -> Sent:
        """The oldest element of the queue; neighbouring small tables of one schema are sent as one."""
        parts = [self._pop()]
        size = parts[0].size
        while self.queue and self._can_join(parts[0].element, self.queue[0].element, size + self.queue[0].size):
            parts.append(self._pop())
            size += parts[-1].size
        return parts[0] if len(parts) == 1 else _joined(parts, size)

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        """Puts a barrier before the queued elements, but behind other barriers; returns those that it overtakes."""
        barriers = (place for place, queued in enumerate(self.queue) if isinstance(queued.element, Barrier))
        last = max(barriers, default=-1)
        behind = [queued.element for place, queued in enumerate(self.queue) if place > last]
        self.queue.insert(last + 1, Sent(barrier, size_of(barrier)))
        self.queued_bytes += size_of(barrier)
        return tuple(element for element in behind if not isinstance(element, EndOfInput | LoopProbe))

    def accepted(self, signal: ExchangeSignal) -> None:
        """The answer of the receiver, or of another attempt of it."""
        self.received = {known.split: known.offset for known in signal.received}
        self._has_ended = signal.ended

    def has_had(self, ranges: Sequence[SplitRange]) -> bool:
        """Whether the receiver has had the records of these parts of a source from an earlier attempt of the sender.

        Then they are only for another attempt of the receiver.
        """
        return bool(ranges) and all(known.end <= self.received.get(known.split, -1) for known in ranges)

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: no receiver begins again before it."""
        if self._log is not None:
            self._log.completed(checkpoint_id)

    def broke(self, reason: str, *, for_good: bool) -> None:
        """The channel is over. for_good: no other attempt of the receiver will do."""
        if for_good:
            self._log = None
        self.broken = reason
        self.clear()

    def rejoined(self, name: str, checkpoint_id: int) -> None:
        """Another attempt of the receiver begins at this completed checkpoint: it gets everything from there on.

        name: of the receiver, for people. Raises CannotRejoin.
        """
        again = self._log.since(checkpoint_id) if self._log is not None else None
        if again is None:
            raise CannotRejoin(f"what was sent to {name} since checkpoint {checkpoint_id} is not kept{self._excess()}")
        self.broken, self.received, self._has_ended = "", {}, False  # what it has had, it loses
        self.queue = deque(again)
        self.queued_bytes = sum(sent.size for sent in again)

    def clear(self) -> None:
        """Drops what is queued."""
        self.queue.clear()
        self.queued_bytes = 0

    def _excess(self) -> str:
        """Why not, for people; "" where the log was not too small."""
        kept = self.kept
        if kept is None or not kept.since:
            return ""
        share = size_text(kept.max_bytes)
        return f": it is more than {share}, the channel's share of taskmanager.replay_log_bytes"

    def _pop(self) -> Sent:
        sent = self.queue.popleft()
        self.queued_bytes -= sent.size
        return sent

    def _can_join(self, first: Element, following: Element, size: int) -> bool:
        if not isinstance(first, pa.Table) or not isinstance(following, pa.Table) or size > self._message_bytes:
            return False
        return bool(first.num_rows and following.num_rows and first.schema.equals(following.schema))


def _joined(parts: Sequence[Sent], size: int) -> Sent:
    """What has been read of a split behind several tables is what the last of them says."""
    read_to = {known.split: known for part in parts for known in part.read_to}
    table = pa.concat_tables([part.element for part in parts])
    return Sent(table, size, parts[-1].more, tuple(read_to.values()))
