"""Encodes rows of Arrow columns as byte strings for a key-value database, and back, thousands at once.

    row = for each column: 1 byte (1: there is a value), then
          a number, boolean, decimal, or date, time or span of time: its bytes, little-endian, zeros for NULL
          a text or binary: 4 bytes length, then the bytes; length 0 for NULL

Equal rows are equal bytes. The types are not part of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.columns.physical import is_text
from lockgate_taskmanager.task.program import UserError

Array = Any  # numpy.ndarray


def check_types(types: Sequence[pa.DataType]) -> None:
    """Raises UserError for a type that cannot be encoded."""
    for kind in types:
        if not is_text(kind) and _width(kind) is None:
            raise UserError(f"values of type {kind} cannot be kept in rocksdb; cast them, or use another state backend")


def encode(columns: Sequence[pa.Array]) -> list[bytes]:
    """One byte string for each row. columns: equally long, at least one."""
    data, ends = packed(columns)
    return [data[start:end] for start, end in pairwise([0, *ends.tolist()])]


def packed(columns: Sequence[pa.Array]) -> tuple[bytes, Array]:
    """The encoded rows concatenated, and the end of each."""
    count = len(columns[0])
    if not count:
        return b"", np.zeros(0, np.int64)
    texts = [_text(column) if is_text(column.type) else None for column in columns]
    lengths = np.zeros(count, np.int64)
    for column, text in zip(columns, texts, strict=True):
        lengths += 1 + ((_width(column.type) or 0) if text is None else 4 + np.diff(text[0]))
    ends = np.cumsum(lengths)
    target = np.zeros(int(ends[-1]), np.uint8)
    at = ends - lengths
    for column, text in zip(columns, texts, strict=True):
        target[at] = column.is_valid().to_numpy(zero_copy_only=False)
        at = at + 1
        at = _put_fixed(target, at, column) if text is None else _put_text(target, at, *text)
    return target.tobytes(), ends


def decode(rows: Sequence[bytes], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The inverse of `encode`. Raises ValueError or IndexError when the bytes do not fit the types."""
    source = np.frombuffer(b"".join(rows), np.uint8)
    return unpacked(source, np.fromiter(map(len, rows), np.int64, len(rows)), types)


def unpacked(source: Array, lengths: Array, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The inverse of `packed`. source: the bytes (uint8); lengths: of each row."""
    ends = np.cumsum(lengths)
    at = ends - lengths
    columns = []
    for kind in types:
        valid = source[at].astype(np.bool_)
        column, at = (_take_text if is_text(kind) else _take_fixed)(source, at + 1, kind, valid)
        columns.append(column)
    if not np.array_equal(at, ends):
        raise ValueError("the bytes of a row do not fit its types")
    return columns


def _width(kind: pa.DataType) -> int | None:
    """Bytes of a value of fixed size, None for other types."""
    if pa.types.is_boolean(kind):
        return 1
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_date,
        pa.types.is_time,
        pa.types.is_timestamp,
        pa.types.is_duration,
        pa.types.is_interval,
        pa.types.is_decimal128,
    )
    if any(test(kind) for test in tests):
        return int(kind.bit_width) // 8
    return None


def _put_fixed(target: Array, at: Array, column: pa.Array) -> Array:
    if pa.types.is_boolean(column.type):
        target[at] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
        return at + 1
    width = _width(column.type) or 0
    raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
    raw = raw.reshape(len(column), width)
    if column.null_count:  # what lies under a NULL is anything
        raw = np.where(column.is_valid().to_numpy(zero_copy_only=False)[:, None], raw, 0)
    target[at[:, None] + np.arange(width)] = raw
    return at + width


def _take_fixed(source: Array, at: Array, kind: pa.DataType, valid: Array) -> tuple[pa.Array, Array]:
    width = _width(kind) or 0
    raw = np.ascontiguousarray(source[at[:, None] + np.arange(width)])
    if pa.types.is_boolean(kind):
        return pa.array(raw[:, 0].astype(np.bool_), mask=~valid), at + 1
    return pa.Array.from_buffers(kind, len(at), [_validity(valid), pa.py_buffer(raw)]), at + width


def _text(column: pa.Array) -> tuple[Array, Array]:
    """Offsets (one more than values) and bytes of a text column, NULL as empty."""
    is_string = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    plain = pc.fill_null(column, "" if is_string else b"").cast(pa.large_string() if is_string else pa.large_binary())
    _, offsets, data = plain.buffers()
    found = np.frombuffer(offsets, np.int64, len(plain) + 1, plain.offset * 8)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return found, content


def _put_text(target: Array, at: Array, offsets: Array, content: Array) -> Array:
    lengths = np.diff(offsets)
    target[at[:, None] + np.arange(4)] = lengths.astype("<u4").view(np.uint8).reshape(len(lengths), 4)
    at = at + 4
    target[spread(at, lengths)] = content[offsets[0] : offsets[-1]]
    return at + lengths


def _take_text(source: Array, at: Array, kind: pa.DataType, valid: Array) -> tuple[pa.Array, Array]:
    lengths = np.ascontiguousarray(source[at[:, None] + np.arange(4)]).view("<u4")[:, 0].astype(np.int64)
    at = at + 4
    content = source[spread(at, lengths)]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    large = pa.large_string() if is_string else pa.large_binary()
    buffers = [_validity(valid), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(large, len(at), buffers).cast(kind), at + lengths


def spread(starts: Array, lengths: Array) -> Array:
    """The positions start, start + 1, ... of each piece, one piece after the other."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def _validity(valid: Array) -> pa.Buffer | None:
    return None if valid.all() else pa.array(valid).buffers()[1]
