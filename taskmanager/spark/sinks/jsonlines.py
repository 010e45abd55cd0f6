"""JSON lines with Arrow kernels: exact numbers, no Python per row, other threads run meanwhile.

NULL is `null`; NaN and infinities are strings as Spark writes them; dates and timestamps are ISO 8601 strings; binary
is hexadecimal. Nested values go through Python's json.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_CONTROL = {chr(code): f"\\u{code:04x}" for code in range(0x20)} | {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def to_lines(table: pa.Table) -> bytes:
    """One line a row, each ending in a newline."""
    if not table.num_rows:
        return b""
    pieces: list[Any] = []
    for index, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        opening = ("{" if index == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        pieces += [pa.scalar(opening), pc.fill_null(_values(column), "null")]
    lines = pc.binary_join_element_wise(*pieces, pa.scalar("}\n"), pa.scalar(""))
    return "".join(lines.to_pylist()).encode() if lines.num_chunks != 1 else _bytes(lines.chunk(0))


def write(table: pa.Table, stream: pa.NativeFile) -> None:
    """Writes the lines of `table`."""
    stream.write(to_lines(table))


def _bytes(lines: pa.Array) -> bytes:
    """The text of a string array, values back to back; without making a Python string of each."""
    wide = lines.cast(pa.large_string())
    offsets = memoryview(wide.buffers()[1]).cast("q")
    start, end = offsets[wide.offset], offsets[wide.offset + len(wide)]
    return bytes(wide.buffers()[2].slice(start, end - start))


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        text = column.cast(pa.string())
        for found, written in _SPECIAL.items():
            text = pc.if_else(pc.equal(text, found), written, text)
        return text
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T"))
    if pa.types.is_date(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(_escaped(column.cast(pa.string())))
    texts = [None if value is None else json.dumps(value, default=_plain) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _escaped(text: pa.ChunkedArray) -> pa.ChunkedArray:
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for found, written in _CONTROL.items():
            text = pc.replace_substring(text, found, written)
    return text


def _quoted(text: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), pa.scalar(""))


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
