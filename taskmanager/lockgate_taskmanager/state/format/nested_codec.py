"""Converts columns of any type to columns that `row_codec` can encode, and back.

struct          a boolean (there is one), then the fields
list, map       two binaries: the length of each element's bytes (4 bytes, little-endian), and these bytes, which
                are `row_codec`'s of the element's own flat columns; NULL for NULL
NULL (no type)  a boolean
others          themselves
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.format import row_codec

Array = Any  # numpy.ndarray


def flat_types(kind: pa.DataType) -> list[pa.DataType]:
    """The flat column types for a column of this type. Raises UserError for a type that cannot be stored."""
    if pa.types.is_struct(kind):
        return [pa.bool_(), *(flat_type for field in kind for flat_type in flat_types(field.type))]
    if _is_list(kind):
        flat_types(_element(kind).type)
        return [pa.large_binary(), pa.large_binary()]
    if pa.types.is_null(kind):
        return [pa.bool_()]
    row_codec.check_types([kind])
    return [kind]


def flat(column: pa.Array) -> list[pa.Array]:
    """The flat columns of a column."""
    kind = column.type
    if pa.types.is_struct(kind):
        return [column.is_valid(), *(array for child in column.flatten() for array in flat(child))]
    if _is_list(kind):
        return _flat_list(column)
    if pa.types.is_null(kind):
        return [column.is_valid()]
    return [column]


def nested(columns: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """The inverse of `flat`: the columns of these types from their flat columns."""
    rest = iter(columns)
    return [_nested(rest, kind) for kind in kinds]


def _nested(rest: Iterator[pa.Array], kind: pa.DataType) -> pa.Array:
    first = next(rest)
    if pa.types.is_struct(kind):
        children = [_nested(rest, field.type) for field in kind]
        return pa.Array.from_buffers(kind, len(first), [_bitmap(first)], children=children)
    if _is_list(kind):
        return _nested_list(first, next(rest), kind)
    return pa.nulls(len(first)) if pa.types.is_null(kind) else first


def _flat_list(column: pa.Array) -> list[pa.Array]:
    counts = pc.fill_null(_lengths(column), 0).to_numpy(zero_copy_only=False)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    data, ends = row_codec.packed(flat(_elements(column)))
    ends = np.concatenate([np.zeros(1, np.int64), ends])
    sizes = np.diff(ends).astype("<u4")
    valid = _bitmap(column.is_valid())
    return [_binary(bounds * 4, sizes, valid), _binary(ends[bounds], data, valid)]


def _nested_list(sizes: pa.Array, content: pa.Array, kind: pa.DataType) -> pa.Array:
    element = _element(kind)
    lengths = np.frombuffer(_content(sizes), "<u4").astype(np.int64)
    source = np.frombuffer(_content(content), np.uint8)
    types = flat_types(element.type)
    (children,) = nested(row_codec.unpacked(source, lengths, types), [element.type])
    offsets = np.frombuffer(sizes.buffers()[1], np.int64, len(sizes) + 1) // 4
    offsets = offsets if pa.types.is_large_list(kind) else offsets.astype(np.int32)
    buffers = [_bitmap(sizes.is_valid()), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(sizes), buffers, children=[children])


def _bitmap(flags: pa.Array) -> pa.Buffer | None:
    """None where all are true. The first flag is the first bit."""
    return None if flags.true_count == len(flags) else pa.array(flags.to_numpy(zero_copy_only=False)).buffers()[1]


def _binary(offsets: Array, data: Any, valid: pa.Buffer | None) -> pa.Array:
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _content(column: pa.Array) -> Any:
    return column.buffers()[2] or b""


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_map))


def _element(kind: pa.DataType) -> pa.Field:
    if pa.types.is_map(kind):
        return pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)
    return kind.value_field


def _as_list(column: pa.Array) -> pa.Array:
    """A map as the list of its entries."""
    if not pa.types.is_map(column.type):
        return column
    entries = pa.StructArray.from_arrays([column.keys, column.items], fields=list(_element(column.type).type))
    kind = pa.list_(_element(column.type))
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], -1, column.offset, [entries])


def _lengths(column: pa.Array) -> pa.Array:
    return pc.list_value_length(_as_list(column))


def _elements(column: pa.Array) -> pa.Array:
    """The elements of all rows that are not NULL."""
    return _as_list(column).flatten()
