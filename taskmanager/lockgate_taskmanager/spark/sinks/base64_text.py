"""Base64 of binary columns, all values in one call: each is padded and they are encoded as one buffer."""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = Any  # numpy.ndarray


def base64_text(column: pa.Array) -> pa.Array:
    """Standard base64 with padding, as large_string; NULL stays NULL."""
    count = len(column)
    if not count:
        return pa.array([], pa.large_string())
    column = column.cast(pa.large_binary())
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    bounds = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + count + 1]
    lengths = np.where(is_valid, np.diff(bounds), 0)  # the bytes behind a NULL are undefined
    ends = np.cumsum((lengths + 2) // 3)
    starts = np.concatenate(([0], ends[:-1]))
    text = _encoded(_padded(column.buffers()[2], bounds[:-1], lengths, starts * 3, int(ends[-1]) * 3))
    for missing in (1, 2):  # missing bytes in a value's last group of three, each an equals sign
        text[ends[(lengths % 3 != 0) & (3 - lengths % 3 >= missing)] * 4 - missing] = ord("=")
    offsets = np.concatenate((starts[:1], ends)) * 4
    valid = pa.array(is_valid).buffers()[1]
    return pa.Array.from_buffers(pa.large_string(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(text)])


def _padded(data: pa.Buffer | None, bounds: Numbers, lengths: Numbers, starts: Numbers, size: int) -> Numbers:
    """The values' bytes, each padded with zeros to a multiple of three.

    bounds: in data; starts: in the padded bytes.
    """
    padded = np.zeros(size, np.uint8)
    if data is not None and size:
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        found = np.frombuffer(data, np.uint8)[np.repeat(bounds, lengths) + within]
        padded[np.repeat(starts, lengths) + within] = found
    return padded


def _encoded(padded: Numbers) -> Numbers:
    return np.frombuffer(bytearray(binascii.b2a_base64(memoryview(padded), newline=False)), np.uint8)
