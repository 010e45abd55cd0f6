"""STRING that is not UTF-8: Spark accepts it, but Python, databases and JSON do not.

It comes from files, and from casts of BINARY. Lines of text files are made valid as they are read; anywhere else such
text is refused where it leaves an operator, with the column's name, before it fails elsewhere without one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.task.program import DataError


def is_valid(data: bytes) -> bool:
    """Whether bytes are UTF-8; gigabytes a second, without blocking other threads."""
    if data.isascii():
        return True
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    whole = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
    return _is_sound(whole)


def made_valid(pieces: Sequence[bytes]) -> list[bytes]:
    """The pieces, with U+FFFD in place of invalid UTF-8, like Spark's make_valid_utf8()."""
    return [piece if is_valid(piece) else piece.decode("utf-8", "replace").encode() for piece in pieces]


def require_valid(table: pa.Table, where: str) -> pa.Table:
    """The table. Raises DataError when a STRING in it, or inside a column of it, is not UTF-8."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if _holds_text(field.type) and not _is_sound(column):
            text = f"column '{field.name}' has text that is not UTF-8; use make_valid_utf8(...), or leave it BINARY"
            raise DataError(text, where=where, column=field.name)
    return table


def _is_sound(values: pa.Array | pa.ChunkedArray) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    if pa.types.is_map(kind):
        return _holds_text(kind.key_type) or _holds_text(kind.item_type)
    if pa.types.is_struct(kind):
        return any(_holds_text(field.type) for field in kind)
    return pa.types.is_list(kind) and _holds_text(kind.value_type)
