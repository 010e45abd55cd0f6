"""The waiting rows of an interval join in RocksDB, limited only by the disk. For the layout see `join_table`.

Each side has its own database, as it has its own snapshots. A batch costs one read of the heads that it adds to, one of
the heads that it looks up, and one of their blocks, however many rows wait. Rows that can find no partner any more are
not looked up; they only take up disk space, and are deleted by ranges at barriers, or after many additions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.arrays import expanded, numpy_of
from lockgate_taskmanager.state.join.join_spec import SpanSpec
from lockgate_taskmanager.state.join.join_table import (
    JoinTable,
    LaterRows,
    block_name,
    blocks_behind,
    last_block,
    put_behind,
    slices,
)
from lockgate_taskmanager.state.join.waiting import columns_of
from lockgate_taskmanager.state.layout import EVENT_TIME, HASH
from lockgate_taskmanager.state.rocksdb.database_store import DatabaseStore
from lockgate_taskmanager.state.rocksdb.engine import Database, portions, size_of
from lockgate_taskmanager.state.rocksdb.frozen_database import FrozenDatabase, group_key
from lockgate_taskmanager.task.program import SnapshotOrder
from lockgate_taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray
_AT_ONCE = 1 << 18  # candidates looked at together, which bounds memory
_HEADS_AT_ONCE = 2048
_BLOCKS_AT_ONCE = 512  # of some 32 kB at most, unless a row is larger
_ROWS_A_CLEARING = 200_000  # added before what is over is removed without a barrier


class JoinDatabase(DatabaseStore):
    """The WaitingRows in RocksDB."""

    _spec: SpanSpec

    def __init__(self, spec: SpanSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        """schema: of the rows; folder: of this store alone; a database in it is opened.

        Raises UserError for a type that cannot be kept, OSError.
        """
        self.table = JoinTable(columns_of(schema), spec.span_ms, spec.max_parallelism, spec.offset_ms)
        super().__init__(spec, folder, memory_bytes)
        self.restored_from: Sequence[About] = ()
        self._until = self._cleared = MIN_WATERMARK  # rows at or before that time are over, and are removed
        self._added = 0  # since

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        if not rows.num_rows:
            return
        blocks = dict(self.table.blocks(rows, hashes, times))
        heads = self.database.get(list(blocks))
        changes: dict[bytes, bytes | None] = {}
        for (name, mine), head in zip(blocks.items(), heads, strict=True):
            changes.update(put_behind(name, head, mine))
        self.database.write(changes)
        self._added += rows.num_rows
        if self._added >= _ROWS_A_CLEARING:
            self.clear()

    def near(self, hashes: Array, first: Array, last: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        early, late = self.table.spans_of(first), self.table.spans_of(last)
        asking = np.concatenate([np.arange(len(hashes)), np.flatnonzero(early != late)])
        asked = self.table.grouped(hashes[asking], np.concatenate([early, late[early != late]]))
        asking = asking[asked.order]
        counts = np.diff(np.concatenate([asked.starts, [len(asking)]]))
        for places, blocks in self._blocks(asked.names):
            rows, times, lengths = self.table.rows_in(blocks)
            of_row = np.repeat(places, lengths)  # which of the names
            for who, row in expanded(asked.starts[of_row], counts[of_row], _AT_ONCE):
                positions = asking[who]
                fits = (times[row] >= first[positions]) & (times[row] <= last[positions])
                if fits.any():
                    yield positions[fits], rows.take(pa.array(row[fits]))

    def forget(self, until: int) -> None:
        self._until = max(until, self._until)

    def clear(self) -> None:
        """Deletes spans of time that are completely over, if any. Takes microseconds for each key group."""
        self._added = 0
        start, end = self._cleared, self._until + 1
        if self.table.spans_of(end) > self.table.spans_of(start):
            self._cleared = end
            self.database.forget(
                (self.table.from_span(group, start), self.table.from_span(group, end))
                for group in self._spec.key_groups
            )

    def purge(self, until: int) -> None:
        database = self.database.itself
        for group in self._spec.key_groups:
            start, end = self.table.from_span(group, until), self.table.behind_span(group, until)
            half_over = list(database.rows(start, end))
            database.delete_ranges([(group_key(group), end)])
            self._add_later(half_over, until)

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in (some for whole in batches for some in slices(whole)):
            hashes, times = (numpy_of(batch, name) for name in (HASH, EVENT_TIME))
            self.add(batch.select(self.table.schema.names), hashes, times)

    def copy(self, other: Database, about: About) -> None:
        """Copies the rows of another subtask's database, without rows already expired for that subtask."""
        until = about.purged_until
        for group in self._spec.key_groups:
            start, end = self.table.from_span(group, until), self.table.behind_span(group, until)
            self._add_later(other.rows(start, end), until)
            for chunk in portions(other.rows(end, group_key(group + 1)), size_of):
                self.database.itself.put([name for name, _ in chunk], [value for _, value in chunk])

    def filled(self, restored_from: Sequence[About]) -> None:
        self.restored_from = restored_from

    def snapshot(self, order: SnapshotOrder, about: About, later: Sequence[Any] = ()) -> FrozenDatabase:  # noqa: ARG002
        """The rows as they are now. Takes microseconds, unless the copy of the previous barrier is not made yet."""
        self.clear()
        return self._frozen(order, about, LaterRows(self.table, about.purged_until), self._spec.piece)

    def _blocks(self, names: Sequence[bytes]) -> Iterator[tuple[Array, list[bytes]]]:
        """The blocks of some heads, each with the number of its head; in portions."""
        heads = [(place, head) for place, head in enumerate(self.database.get(names)) if head is not None]
        last = [(place, last_block(head)) for place, head in heads]
        yield from _portions([(place, block) for place, block in last if block])
        behind = [(place, number) for place, head in heads for number in range(blocks_behind(head))]
        for start in range(0, len(behind), _BLOCKS_AT_ONCE):
            some = behind[start : start + _BLOCKS_AT_ONCE]
            found = self.database.get([block_name(names[place], number) for place, number in some])
            pairs = [(place, block) for (place, _), block in zip(some, found, strict=True) if block is not None]
            assert len(pairs) == len(some), "a head counts its blocks"
            yield from _portions(pairs)

    def _add_later(self, entries: Iterable[tuple[bytes, bytes]], until: int) -> None:
        for some in portions(entries, size_of):
            rows, hashes, times = self.table.rows_of(some)
            is_kept = times > until
            self.add(rows.filter(pa.array(is_kept)), hashes[is_kept], times[is_kept])


def _portions(blocks: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Array, list[bytes]]]:
    for start in range(0, len(blocks), _HEADS_AT_ONCE):
        some = blocks[start : start + _HEADS_AT_ONCE]
        yield np.fromiter((place for place, _ in some), np.int64, len(some)), [block for _, block in some]
