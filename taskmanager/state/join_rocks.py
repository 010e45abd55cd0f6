"""The rows of an interval join in RocksDB: as many as the disk holds. See `join_table` for how they lie there.

Each side has a database of its own, as it has snapshots of its own. A batch costs a read of the heads that it adds to,
one of those that it asks for, and one of the blocks behind these, whatever waits besides. Rows that no partner can come
for go by ranges, at barriers, or when many were added since: they are not asked for, so only the disk tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import JoinSide, OperatorState

from taskmanager.state import filling, stored
from taskmanager.state.frozen_rocks import FrozenRocks, endless_chains, frozen_rocks, group_key
from taskmanager.state.held_database import opened
from taskmanager.state.join_home import JoinSpec
from taskmanager.state.join_table import (
    JoinTable,
    LaterRows,
    block_name,
    blocks_behind,
    last_block,
    put_behind,
)
from taskmanager.state.rocksdb import Database, portions, size_of
from taskmanager.state.waiting import RestoredSide
from taskmanager.task.program import SnapshotOrder
from taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray
_AT_ONCE = 1 << 18  # candidates looked at together, which bounds memory
_HEADS_AT_ONCE = 2048
_BLOCKS_AT_ONCE = 512  # of some 32 kB at most, unless a row is larger
_ROWS_A_CLEARING = 200_000  # added before what is over is removed without a barrier


class RocksRows:
    """See WaitingRows. The database's folder is removed by `close`."""

    def __init__(self, spec: JoinSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        """schema: of the rows; folder: of this one alone; a database that lies in it is taken over.

        Raises UserError for a type that cannot be kept, OSError.
        """
        self.table = JoinTable(schema, spec.span_ms, spec.max_parallelism)
        self.chains = endless_chains()
        self._groups = spec.key_groups
        self._database = opened(folder, memory_bytes)
        self._until = self._cleared = MIN_WATERMARK  # rows at or before that time are over, and are removed
        self._added = 0  # since

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        """See WaitingRows."""
        if not rows.num_rows:
            return
        blocks = dict(self.table.blocks(rows, hashes, times))
        heads = self._database.get(list(blocks))
        changes: dict[bytes, bytes | None] = {}
        for (name, mine), head in zip(blocks.items(), heads, strict=True):
            changes.update(put_behind(name, head, mine))
        self._database.write(changes)
        self._added += rows.num_rows
        if self._added >= _ROWS_A_CLEARING:
            self.clear()

    def near(self, hashes: Array, first: Array, last: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """See WaitingRows."""
        early, late = first // self.table.span_ms, last // self.table.span_ms
        asking = np.concatenate([np.arange(len(hashes)), np.flatnonzero(early != late)])
        asked = self.table.grouped(hashes[asking], np.concatenate([early, late[early != late]]))
        asking = asking[asked.order]
        counts = np.diff(np.concatenate([asked.starts, [len(asking)]]))
        for places, blocks in self._blocks(asked.names):
            rows, times, lengths = self.table.rows_in(blocks)
            of_row = np.repeat(places, lengths)  # which of the names
            for who, row in _candidates(asked.starts[of_row], counts[of_row]):
                positions = asking[who]
                fits = (times[row] >= first[positions]) & (times[row] <= last[positions])
                if fits.any():
                    yield positions[fits], rows.take(pa.array(row[fits]))

    def forget(self, until: int) -> None:
        """See WaitingRows."""
        self._until = max(until, self._until)

    def clear(self) -> None:
        """Removes whole spans of time in which all is over. Microseconds for each key group, if there are any."""
        self._added = 0
        start, end = self._cleared, self._until + 1
        if end // self.table.span_ms > start // self.table.span_ms:
            self._cleared = end
            self._database.forget(
                (self.table.from_span(group, start), self.table.from_span(group, end)) for group in self._groups
            )

    def purge(self, until: int) -> None:
        """See WaitingRows."""
        database = self._database.itself
        for group in self._groups:
            start, end = self.table.from_span(group, until), self.table.behind_span(group, until)
            half_over = list(database.rows(start, end))
            database.delete_ranges([(group_key(group), end)])
            self._add_later(half_over, until)

    def copy_from(self, other: Database, until: int) -> None:
        """Adds the rows of this subtask's key groups in another database with a time after `until`."""
        for group in self._groups:
            start, end = self.table.from_span(group, until), self.table.behind_span(group, until)
            self._add_later(other.rows(start, end), until)
            for chunk in portions(other.rows(end, group_key(group + 1)), size_of):
                self._database.itself.put([name for name, _ in chunk], [value for _, value in chunk])

    def keep_own_groups(self) -> None:
        """Drops the rows of other key groups."""
        filling.keep(self._database.itself, self._groups)

    def snapshot(self, operator_id: str, side: JoinSide, order: SnapshotOrder, about: stored.About) -> FrozenRocks:
        """As it is now. Microseconds, unless the copy of the barrier before is not made yet."""
        self.clear()
        until = MIN_WATERMARK if about.purged_until is None else about.purged_until
        form, piece = LaterRows(self.table, until), side.name.lower()
        return frozen_rocks(operator_id, self._database, about, self.chains, order, form, piece)

    def close(self) -> None:
        """Idempotent."""
        self._database.close()

    def _blocks(self, names: Sequence[bytes]) -> Iterator[tuple[Array, list[bytes]]]:
        """The blocks of some heads, and of which of them each is; some at a time."""
        heads = [(place, head) for place, head in enumerate(self._database.get(names)) if head is not None]
        last = [(place, last_block(head)) for place, head in heads]
        yield from _portions([(place, block) for place, block in last if block])
        behind = [(place, number) for place, head in heads for number in range(blocks_behind(head))]
        for start in range(0, len(behind), _BLOCKS_AT_ONCE):
            some = behind[start : start + _BLOCKS_AT_ONCE]
            found = self._database.get([block_name(names[place], number) for place, number in some])
            pairs = [(place, block) for (place, _), block in zip(some, found, strict=True) if block is not None]
            assert len(pairs) == len(some), "a head counts its blocks"
            yield from _portions(pairs)

    def _add_later(self, entries: Iterable[tuple[bytes, bytes]], until: int) -> None:
        for some in portions(entries, size_of):
            rows, hashes, times = self.table.rows_of(some)
            is_kept = times > until
            self.add(rows.filter(pa.array(is_kept)), hashes[is_kept], times[is_kept])


class JoinRocks:
    """See JoinHome."""

    def __init__(self, spec: JoinSpec, new_path: Callable[[], Path], memory_bytes: int) -> None:
        """new_path: of a folder that is not there; memory_bytes: for both sides together."""
        self.sides: dict[JoinSide, RocksRows] = {}
        self._spec = spec
        self._new_path = new_path
        self._memory_bytes = memory_bytes // 2

    def fresh(self, side: JoinSide, schema: pa.Schema) -> RocksRows:
        """See JoinHome."""
        self.sides[side] = RocksRows(self._spec, schema, self._new_path(), self._memory_bytes)
        return self.sides[side]

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> Sequence[RestoredSide]:
        """See JoinHome."""
        from taskmanager.state.restored_join_rocks import JoinRestore

        restore = JoinRestore(self._spec, checkpoint_id, self._new_path, self._memory_bytes)
        found = []
        for side, mine in restore.by_side(states).items():
            one = restore.side(side, mine)
            self.sides[side] = one.rows
            found.append(RestoredSide(side, one.schema, one.rows, one.told, one.purged_until))
        return found

    def snapshot(self, order: SnapshotOrder, sides: Mapping[JoinSide, stored.About]) -> tuple[FrozenRocks, ...]:
        """See JoinHome."""
        return tuple(
            self.sides[side].snapshot(self._spec.operator_id, side, order, about) for side, about in sides.items()
        )

    def close(self) -> None:
        """See JoinHome."""
        for one in self.sides.values():
            one.close()


def _portions(blocks: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Array, list[bytes]]]:
    for start in range(0, len(blocks), _HEADS_AT_ONCE):
        some = blocks[start : start + _HEADS_AT_ONCE]
        yield np.fromiter((place for place, _ in some), np.int64, len(some)), [block for _, block in some]


def _candidates(starts: Array, counts: Array) -> Iterator[tuple[Array, Array]]:
    """For row i the numbers from starts[i], counts[i] of them: pairs (number, row), some at a time."""
    bounds = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = int(bounds[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(bounds, done + _AT_ONCE, "right")))
        here = counts[begin:end]
        rows = np.repeat(np.arange(begin, end), here)
        within = np.arange(len(rows)) - np.repeat(bounds[begin:end] - here - done, here)
        yield starts[rows] + within, rows
        begin = end
