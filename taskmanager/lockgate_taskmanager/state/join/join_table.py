"""The layout of one side of an interval join in a database.

The waiting rows of one key (its hash) and one span of time are stored in *blocks*, in order of arrival. The last block
is part of the head, where new rows are appended until the block is large enough. So a rare key costs one read, a
frequent one a read for each few hundred bytes, and adding a row costs the same however many rows wait.

    head    key = key group (2 bytes), span + 2^63 (8), `__hash` (8), all big-endian
            value = number of blocks behind it (4 bytes, little-endian), the last block, if any
    block   key = the head's, number from 0 (4 bytes, big-endian)
            value = number of rows (4 bytes, little-endian), the length of each (4), the rows
    row     the time in milliseconds, then the columns, see `row_codec` and `nested_codec`

The span of a time is the time divided by as many milliseconds as the interval has. The rows of windows are laid out
alike: there a span is a pane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.state.format.nested_codec import flat, flat_types, nested
from lockgate_taskmanager.state.layout import EVENT_TIME, HASH
from lockgate_taskmanager.state.rocksdb import engine
from lockgate_taskmanager.state.rocksdb.frozen_database import group_key

Array = Any  # numpy.ndarray
HEAD_BYTES = 18
_COUNT_BYTES = 4
_TAIL_BYTES = 512  # a block in a head that is larger stays as it is
_BLOCK_BYTES = 32 << 10  # what one batch brings is cut into blocks of about this size
_LAST_SPAN = (1 << 63) - 1
_HEAD = np.dtype([("group", ">u2"), ("span", ">u8"), ("hash", ">i8")])


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows by key and span. order: of the rows; starts: where, in that order, each group begins; names: heads' keys."""

    order: Array
    starts: Array
    names: list[bytes]


class JoinTable:
    """Encodes waiting rows as database entries, and back. schema: of the rows."""

    def __init__(self, schema: pa.Schema, span_ms: int, max_parallelism: int, offset_ms: int = 0) -> None:
        """offset_ms: when a span begins. Raises UserError for a type that cannot be kept."""
        self.schema = schema
        self.span_ms = span_ms
        self._offset_ms = offset_ms
        self._max_parallelism = max_parallelism
        self._types = [pa.int64(), *(flat_type for field in schema for flat_type in flat_types(field.type))]
        self._stored = pa.schema([*schema, pa.field(HASH, pa.int64()), pa.field(EVENT_TIME, pa.int64())])

    def spans_of(self, times: Any) -> Any:
        """The span of a time, or of each."""
        return (times - self._offset_ms) // self.span_ms

    def grouped(self, hashes: Array, spans: Array) -> Grouped:
        """Groups in the order of their names."""
        heads = np.empty(len(hashes), _HEAD)
        heads["group"] = np.mod(hashes, self._max_parallelism)
        heads["span"] = spans.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
        heads["hash"] = hashes
        order = np.lexsort((hashes.view(np.uint64), heads["span"].astype(np.uint64), heads["group"]))
        heads = heads[order]
        is_new = np.ones(len(heads), np.bool_)
        is_new[1:] = heads[1:] != heads[:-1]
        starts = np.flatnonzero(is_new)
        names = heads[starts].tobytes()
        return Grouped(order, starts, [names[at : at + HEAD_BYTES] for at in range(0, len(names), HEAD_BYTES)])

    def blocks(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> Iterator[tuple[bytes, list[bytes]]]:
        """Keys of heads, in order, with the blocks to append to each."""
        grouped = self.grouped(hashes, self.spans_of(times))
        rows, times = rows.take(pa.array(grouped.order)), times[grouped.order]
        data, ends = row_codec.packed([pa.array(times), *(array for column in rows.columns for array in flat(column))])
        ends = np.concatenate([np.zeros(1, np.int64), ends])
        sizes = np.diff(ends).astype("<u4").tobytes()
        bounds, firsts = _cut(ends[:-1], grouped.starts)
        made = [
            (end - start).to_bytes(_COUNT_BYTES, "little") + sizes[4 * start : 4 * end] + data[first:behind]
            for (start, end), (first, behind) in zip(
                pairwise([*bounds.tolist(), len(times)]), pairwise([*ends[bounds].tolist(), len(data)]), strict=True
            )
        ]
        for name, (first, behind) in zip(grouped.names, pairwise([*firsts.tolist(), len(made)]), strict=True):
            yield name, made[first:behind]

    def rows_in(self, blocks: Sequence[bytes]) -> tuple[pa.RecordBatch, Array, Array]:
        """The rows of some blocks with their times, and how many rows each block has."""
        found = [self._rows_in(some) for some in engine.portions(blocks, len)] or [self._rows_in([])]
        if len(found) == 1:
            return found[0]
        columns = [pa.concat_arrays(parts) for parts in zip(*(rows.columns for rows, _, _ in found), strict=True)]
        times, counts = (np.concatenate([item[part] for item in found]) for part in (1, 2))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), times, counts

    def _rows_in(self, blocks: Sequence[bytes]) -> tuple[pa.RecordBatch, Array, Array]:
        source = np.frombuffer(b"".join(blocks), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, blocks), np.int64, len(blocks)))
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        counts = np.ascontiguousarray(source[starts[:, None] + np.arange(4)]).view("<u4")[:, 0].astype(np.int64)
        contents = starts + _COUNT_BYTES + 4 * counts
        sizes = source[row_codec.spread(starts + _COUNT_BYTES, 4 * counts)].view("<u4").astype(np.int64)
        content = source[row_codec.spread(contents, ends - contents)]
        columns = row_codec.unpacked(content, sizes, self._types)
        kept = nested(columns[1:], self.schema.types)
        times = columns[0].to_numpy(zero_copy_only=False)
        return pa.RecordBatch.from_arrays(kept, schema=self.schema), times, counts

    def rows_of(self, entries: Sequence[tuple[bytes, bytes]]) -> tuple[pa.RecordBatch, Array, Array]:
        """Entries of the database as rows with hashes and times."""
        found = [(name, value if len(name) > HEAD_BYTES else value[_COUNT_BYTES:]) for name, value in entries]
        found = [(name, block) for name, block in found if block]
        rows, times, counts = self.rows_in([block for _, block in found])
        hashes = np.frombuffer(b"".join(name[HEAD_BYTES - 8 : HEAD_BYTES] for name, _ in found), ">i8")
        return rows, np.repeat(hashes.astype(np.int64), counts), times

    def from_span(self, group: int, time_ms: int) -> bytes:
        """A lower bound of the keys of that key group whose span is that of `time_ms` or later."""
        span = max(self.spans_of(time_ms), -(1 << 63))
        return group_key(group + 1) if span > _LAST_SPAN else group_key(group) + (span + (1 << 63)).to_bytes(8, "big")

    def time_of(self, name: bytes) -> int:
        """The first time of the span that a key is of."""
        return (int.from_bytes(name[2:10], "big") - (1 << 63)) * self.span_ms + self._offset_ms

    def behind_span(self, group: int, time_ms: int) -> bytes:
        """The same for the spans after that one."""
        return self.from_span(group, time_ms + self.span_ms)

    def stored_batch(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> pa.RecordBatch:
        """Rows as they are in a snapshot file."""
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(hashes), pa.array(times)], schema=self._stored)


@dataclass(frozen=True, slots=True)
class LaterRows:
    """The TableForm of the rows with a time after `until`."""

    table: JoinTable
    until: int

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        found, hashes, times = self.table.rows_of(rows)
        batch = self.table.stored_batch(found, hashes, times)
        is_kept = times > self.until
        return batch if is_kept.all() else batch.filter(pa.array(is_kept))


def slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same of rows of about one size."""
    step = max(1, engine.BYTES_AT_ONCE * rows.num_rows // max(1, rows.nbytes))
    return (rows.slice(start, step) for start in range(0, rows.num_rows, step))


def blocks_behind(head: bytes) -> int:
    """The number of blocks outside the head."""
    return int.from_bytes(head[:_COUNT_BYTES], "little")


def last_block(head: bytes) -> bytes:
    """The block in the head; empty for none."""
    return head[_COUNT_BYTES:]


def block_name(name: bytes, number: int) -> bytes:
    """The key of a block. name: of the head."""
    return name + number.to_bytes(_COUNT_BYTES, "big")


def put_behind(name: bytes, head: bytes | None, blocks: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The entries to write when rows are added. head: the present value, None for none."""
    count, last = (0, b"") if head is None else (blocks_behind(head), last_block(head))
    for block in blocks:
        last = _together(last, block) if last else block
        if len(last) > _TAIL_BYTES:
            yield block_name(name, count), last
            count, last = count + 1, b""
    yield name, count.to_bytes(_COUNT_BYTES, "little") + last


def _together(first: bytes, second: bytes) -> bytes:
    """Two blocks as one."""
    here, there = (int.from_bytes(side[:_COUNT_BYTES], "little") for side in (first, second))
    cut, other = _COUNT_BYTES + 4 * here, _COUNT_BYTES + 4 * there
    sizes = first[_COUNT_BYTES:cut] + second[_COUNT_BYTES:other]
    return (here + there).to_bytes(_COUNT_BYTES, "little") + sizes + first[cut:] + second[other:]


def _cut(begins: Array, starts: Array) -> tuple[Array, Array]:
    """Where blocks begin, and the first block of each group. begins: byte at which each row does."""
    lengths = np.diff(np.concatenate([starts, [len(begins)]]))
    number = (begins - np.repeat(begins[starts], lengths)) // _BLOCK_BYTES
    is_new = np.zeros(len(begins), np.bool_)
    is_new[1:] = number[1:] != number[:-1]
    is_new[starts] = True
    return np.flatnonzero(is_new), np.cumsum(is_new)[starts] - 1
