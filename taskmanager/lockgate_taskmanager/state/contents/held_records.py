"""The interface of the records that windows hold, in memory or in a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.state.windows.panes import Panes
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """Records of one key group. hashes: of their keys; times: in milliseconds."""

    group: int
    rows: Sequence[pa.RecordBatch]
    hashes: Array
    times: Array


class HeldRecords(Protocol):
    """Records by key group and time. Used from the subtask's own thread.

    panes: those that may have records, by key group; restored_from: after a restore, the headers of the restored
    pieces.
    """

    panes: Panes
    restored_from: Sequence[About]

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        """Adds records. Cost grows with these, not with the records held."""
        ...

    def between(self, start_ms: int, end_ms: int) -> Iterator[GroupRecords]:
        """The records with a time from `start_ms` to before `end_ms`, both bounds of panes; a key group at a time.

        Records of a key with equal times are in order of arrival. Cost grows with the records found.
        """
        ...

    def forget(self, until: int) -> None:
        """Drops records with a time at or before `until`, the end of a pane: no later look-up asks for them."""
        ...

    def purge(self, until: int) -> None:
        """The same right after a restore."""
        ...

    def snapshot(self, order: SnapshotOrder, about: About) -> FrozenStore:
        """The records as they are now, without those at or before `about.purged_until`. Raises OSError."""
        ...

    def close(self) -> None:
        """Releases memory and scratch files. Idempotent."""
        ...
