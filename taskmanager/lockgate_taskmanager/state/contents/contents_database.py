"""The records of windows in RocksDB, limited only by the disk: laid out as those of a join, with a pane for a span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.held_records import GroupRecords
from lockgate_taskmanager.state.join.join_database import JoinDatabase
from lockgate_taskmanager.state.join.join_table import HEAD_BYTES
from lockgate_taskmanager.state.rocksdb.engine import portions, size_of
from lockgate_taskmanager.state.rocksdb.frozen_database import group_key
from lockgate_taskmanager.state.windows.panes import Panes

Array = Any  # numpy.ndarray
_ENTRIES_AT_ONCE = 2048
Entry = tuple[bytes, bytes]


class ContentsDatabase(JoinDatabase):
    """The HeldRecords in RocksDB."""

    def __init__(self, spec: ContentsSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        """As JoinDatabase."""
        super().__init__(spec, schema, folder, memory_bytes)
        self.panes = Panes(spec.key_groups)

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        super().add(rows, hashes, times)
        self._note(hashes, times)

    def between(self, start_ms: int, end_ms: int) -> Iterator[GroupRecords]:
        for group in self.panes.groups(self.panes.until(end_ms - 1, start_ms - 1)):
            entries = list(self._entries(self.table.from_span(group, start_ms), self.table.from_span(group, end_ms)))
            entries.sort(key=_arrival)
            found = [self.table.rows_of(some) for some in portions(entries, size_of)]
            if found:
                rows, hashes, times = zip(*found, strict=True)
                yield GroupRecords(group, rows, np.concatenate(hashes), np.concatenate(times))

    def forget(self, until: int) -> None:
        super().forget(until)
        self.panes.drop(self.panes.until(until))

    def purge(self, until: int) -> None:
        super().purge(until)
        self.panes.drop(self.panes.until(until))

    def filled(self, restored_from: Sequence[About]) -> None:
        """Restores the index of panes. Costs one look-up for each pane in each key group."""
        super().filled(restored_from)
        for group in self._spec.key_groups:
            at = group_key(group)
            while found := self.database.names(at, group_key(group + 1), 1):
                pane = self.table.time_of(found[0])
                self.panes.add(np.array([pane]), np.array([group]))
                at = self.table.behind_span(group, pane)

    def _entries(self, start: bytes, end: bytes) -> Iterator[Entry]:
        while some := self.database.rows(start, end, _ENTRIES_AT_ONCE):
            yield from some
            if len(some) < _ENTRIES_AT_ONCE:
                return
            start = some[-1][0] + b"\0"

    def _note(self, hashes: Array, times: Array) -> None:
        panes = times - (times - self._spec.offset_ms) % self._spec.span_ms
        self.panes.add(panes, np.mod(hashes, self._spec.max_parallelism))


def _arrival(entry: Entry) -> tuple[bytes, bool, bytes]:
    """Sorts the head of a key and pane behind its blocks: it has the latest records."""
    name = entry[0]
    return name[:HEAD_BYTES], len(name) == HEAD_BYTES, name
