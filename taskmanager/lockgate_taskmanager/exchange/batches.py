"""The arriving batches of one channel in a job that may restart in part.

Another attempt of the sender continues where its receiver is. That is known only between two batches of a source: the
tables of one come in any order of records, and another attempt makes them anew. So they wait until all are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockgate_proto.messages import EndOfInput, SplitPosition

from lockgate_taskmanager.exchange.elements import Element

Piece = tuple[Element, int]
"""An element and its size in bytes."""


class ArrivingBatches:
    """Pure. most_bytes: of a batch that waits; a larger one is passed on in parts."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: list[Piece] = []
        self._positions: dict[str, int] = {}
        self._read: dict[str, int] = {}  # the same once what waits is passed on: an earlier batch may end in it
        self.waiting_bytes = 0
        self.is_torn = False  # a part of a batch was passed on, and the rest has not arrived
        self.has_ended = False

    @property
    def received(self) -> tuple[SplitPosition, ...]:
        """How far the sender's splits have arrived."""
        return tuple(SplitPosition(split, offset) for split, offset in self._positions.items())

    def arrived(self, element: Element, size: int, more: bool, read_to: Sequence[SplitPosition]) -> list[Piece]:
        """The next element of the channel; returns what may be passed on. more, read_to: as in StreamElement."""
        self.has_ended = self.has_ended or isinstance(element, EndOfInput)
        self._waiting.append((element, size))
        self.waiting_bytes += size
        self._read.update((known.split, known.offset) for known in read_to)
        if more and self.waiting_bytes <= self._most_bytes:
            return []
        self.is_torn = more
        self._positions |= self._read
        passed = self._waiting
        self.drop_part()
        return passed

    def drop_part(self) -> None:
        """The sender is gone: its last batch, if it is not whole, will be made again."""
        self._waiting, self._read, self.waiting_bytes = [], {}, 0
