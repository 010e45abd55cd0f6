"""JSON lines with Arrow kernels, nested values included: exact numbers, no Python per row, other threads are not
blocked.

NULL is `null`; NaN and infinities are strings as Spark writes them; dates and timestamps are ISO 8601 strings; BINARY
is base64; a map is an object. A value has the same text at any depth, and Spark reads it back equal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.spark.sinks.base64_text import base64_text
from lockgate_taskmanager.spark.sinks.value_text import date_text, float_text, is_special, timestamp_text

_CONTROL = {chr(code): f"\\u{code:04x}" for code in range(0x20)} | {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PIECE_BYTES = 16 << 20  # of Arrow; even fully escaped the text stays far below 2 GiB


def to_lines(table: pa.Table) -> bytes:
    """One line a row, each ending in a newline."""
    return b"".join(_lines(batch) for batch in _pieces(table))


def write(table: pa.Table, stream: pa.NativeFile) -> None:
    """Writes the lines of `table`."""
    for batch in _pieces(table):
        stream.write(_lines(batch))


def _pieces(table: pa.Table) -> Sequence[pa.RecordBatch]:
    rows = max(1, table.num_rows * _PIECE_BYTES // max(1, table.nbytes))
    pieces: Sequence[pa.RecordBatch] = table.to_batches(max_chunksize=rows)
    return pieces


def _lines(batch: pa.RecordBatch) -> bytes:
    if not batch.num_rows:
        return b""
    return _bytes(_joined(_object(batch.schema.names, batch.columns, batch.num_rows), pa.scalar("\n")))


def _bytes(lines: pa.Array) -> bytes:
    """The text of a string array, values concatenated, without making a Python string of each."""
    wide = lines.cast(pa.large_string())
    offsets = memoryview(wide.buffers()[1]).cast("q")
    start, end = offsets[wide.offset], offsets[wide.offset + len(wide)]
    return bytes(wide.buffers()[2].slice(start, end - start))


def _object(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """One object per row; names in the order of columns."""
    if not names:
        return pa.repeat(pa.scalar("{}"), rows)
    pieces: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        opening = ("{" if index == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        pieces += [pa.scalar(opening), pc.fill_null(_values(column), "null")]
    return _joined(*pieces, pa.scalar("}"))


def _values(column: pa.Array) -> pa.Array:
    """The JSON text of each value, as string; NULL where it is NULL."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        text = float_text(column)
        special = is_special(column)
        return pc.if_else(special, _quoted(text), text) if pc.any(special).as_py() else text
    if pa.types.is_timestamp(kind):
        return _quoted(timestamp_text(column))
    if pa.types.is_date(kind):
        return _quoted(date_text(column))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _quoted(base64_text(column).cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(_escaped(column.cast(pa.string())))
    if pa.types.is_struct(kind):
        return _nulled(column, _object([field.name for field in kind], column.flatten(), len(column)))
    if pa.types.is_map(kind):
        return _map(column)
    assert pa.types.is_list(kind), f"{kind} should have been refused before writing"
    return _nulled(column, _enclosed("[", column, pc.fill_null(_values(column.flatten()), "null"), "]"))


def _map(column: pa.MapArray) -> pa.Array:
    entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    keys, values = entries.flatten().flatten()
    texts = _joined(_values(keys), pa.scalar(":"), pc.fill_null(_values(values), "null"))
    return _nulled(column, _enclosed("{", entries, texts, "}"))


def _enclosed(opening: str, lists: pa.ListArray, elements: pa.Array, closing: str) -> pa.Array:
    """The texts of the lists' elements, concatenated to one text per list."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    inside = pc.binary_join(pa.ListArray.from_arrays(offsets, elements), ",")
    return _joined(pa.scalar(opening), inside, pa.scalar(closing))


def _nulled(column: pa.Array, text: pa.Array) -> pa.Array:
    """Sets NULL where the column is NULL."""
    return pc.if_else(column.is_valid(), text, pa.scalar(None, text.type)) if column.null_count else text


def _escaped(text: pa.Array) -> pa.Array:
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for found, written in _CONTROL.items():
            text = pc.replace_substring(text, found, written)
    return text


def _quoted(text: pa.Array) -> pa.Array:
    return _joined(pa.scalar('"'), text, pa.scalar('"'))


def _joined(*pieces: Any) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, pa.scalar(""))
