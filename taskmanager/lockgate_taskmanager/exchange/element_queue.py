"""What waits in one input channel: first in, first out.

A back edge's queue is never full, because a loop whose back edge can block may block itself. What is more in it than
MEMORY_BYTES lies on disk until its turn comes, in files without a name: nothing of them outlives the process.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import RecordBatch

from lockgate_taskmanager.exchange.elements import Element, from_message, to_message

MEMORY_BYTES = 16 * 1024 * 1024
SEGMENT_BYTES = 64 * 1024 * 1024


class Segment:
    """One file of spilled tables, read and written from any thread. Its space is given back with its last reader."""

    def __init__(self, folder: str | None) -> None:
        """folder: None for the system's. Raises OSError."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with its last reference
        self.size = 0

    def write(self, data: bytes) -> int:
        """Appends; returns where. Raises OSError."""
        place, view = self.size, memoryview(data)
        while view:
            written = os.pwrite(self._file.fileno(), view, self.size)
            self.size += written
            view = view[written:]
        return place

    def read(self, place: int, size: int) -> bytes:
        """What was written there. Raises OSError."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(self._file.fileno(), size, place)
            if not part:
                raise OSError("a file of records that circulate in a loop is shorter than what was written to it")
            parts.append(part)
            place, size = place + len(part), size - len(part)
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Spilled:
    """A table on disk."""

    segment: Segment
    place: int
    size: int
    rows: int

    def load(self) -> pa.Table:
        """The table. Raises OSError."""
        return from_message(RecordBatch(self.segment.read(self.place, self.size), self.rows))


Stored = Element | Spilled


def loaded(stored: Stored) -> Element:
    """The element, from disk if it is there. Raises OSError."""
    return stored.load() if isinstance(stored, Spilled) else stored


class ElementQueue:
    """Used under its gate's lock. memory_bytes: None keeps everything in memory; folder: for what is more."""

    def __init__(self, memory_bytes: int | None = None, folder: str | None = None) -> None:
        self._limit, self._folder = memory_bytes, folder
        self._entries: deque[tuple[Stored, int]] = deque()
        self._in_memory = 0
        self._segment: Segment | None = None
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[Stored, int]]:
        """The elements and their sizes, as they are stored: nothing is read for it."""
        return iter(self._entries)

    def append(self, element: Element, size: int) -> Stored:
        """Puts an element behind the others; returns it as it is stored. Raises OSError, RecordTooLarge."""
        stored: Stored = element
        if self._limit is not None and isinstance(element, pa.Table) and self._in_memory + size > self._limit:
            stored = self._spill(element)
        else:
            self._in_memory += size
        self._entries.append((stored, size))
        self.bytes += size
        return stored

    def appendleft(self, element: Element, size: int) -> None:
        """Puts an element before the others."""
        self._in_memory += size
        self._entries.appendleft((element, size))
        self.bytes += size

    def popleft(self) -> tuple[Element, int]:
        """Takes the oldest element. Raises OSError."""
        stored, size = self._entries.popleft()
        self.bytes -= size
        if not isinstance(stored, Spilled):
            self._in_memory -= size
        return loaded(stored), size

    @property
    def next_is_records(self) -> bool:
        """Whether the oldest element is a table."""
        return bool(self._entries) and isinstance(self._entries[0][0], pa.Table | Spilled)

    def clear(self) -> None:
        """Drops everything."""
        self._entries.clear()
        self._in_memory = self.bytes = 0
        self._segment = None

    def _spill(self, table: pa.Table) -> Spilled:
        data = to_message(table).arrow_ipc
        if self._segment is None or self._segment.size >= SEGMENT_BYTES:
            self._segment = Segment(self._folder)
        return Spilled(self._segment, self._segment.write(data), len(data), table.num_rows)
