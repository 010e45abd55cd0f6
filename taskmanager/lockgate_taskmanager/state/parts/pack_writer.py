"""Stores parts, many in one file."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from lockgate_proto.messages import StateHandle

from lockgate_taskmanager.state.backend import SnapshotWriter, inline_handle
from lockgate_taskmanager.state.parts.stored_part import StoredPart, digest

PACK_BYTES = 32 << 20
"""A file is ended when it has this many: a whole state is then several files, of which each can be given up alone."""

INLINE_BYTES = 1_024
"""A state of at most this many bytes has no file: it is inside the snapshot's metadata."""


class PackWriter:
    """The new files of one snapshot of one operator. Used from the thread that persists."""

    def __init__(self, operator_id: str, writer: SnapshotWriter, is_shared: bool) -> None:
        """is_shared: later snapshots may refer to the files."""
        self._operator_id, self._writer, self._is_shared = operator_id, writer, is_shared
        self._waiting: list[tuple[str, int, bytes]] = []
        self._waiting_bytes = self._files = 0
        self._stored: dict[str, StoredPart] = {}

    def add(self, name: str, items: int, data: bytes) -> None:
        """Stores a part; a later one of the same name replaces it. Raises SnapshotTooLarge, OSError."""
        self._waiting.append((name, items, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= PACK_BYTES:
            self._flush()

    def finish(self) -> dict[str, StoredPart]:
        """Where each part is. Raises SnapshotTooLarge, OSError."""
        self._flush()
        return self._stored

    def _flush(self) -> None:
        if not self._waiting:
            return
        data, offset = b"".join(data for _, _, data in self._waiting), 0
        handle = self._store(data)
        for part, items, part_data in self._waiting:
            self._stored[part] = StoredPart(handle, offset, len(part_data), digest(part_data), items)
            offset += len(part_data)
        self._files += 1
        self._waiting, self._waiting_bytes = [], 0

    def _store(self, data: bytes) -> StateHandle:
        if len(data) <= INLINE_BYTES and not self._files and not self._is_shared:
            return inline_handle(data)
        name = f"{self._operator_id}-parts-{self._files}"
        return self._writer.store(name, pa.py_buffer(data), is_shared=self._is_shared)


def total_bytes(parts: Iterable[StoredPart]) -> int:
    """What is in use."""
    return sum(part.size_bytes for part in parts)
