"""Spark's `xxhash64` of one key, by which its key group and its rows are found. Pure.

Spark hashes keys in the JVM while the job runs; here there is none. A reader compares the result with a stored hash
before it relies on it, see `snapshot_reader`.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable, Sequence

import pyarrow as pa

from lockgate_taskmanager.task.program import UserError

SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MASK = (1 << 64) - 1
_EXACT = decimal.Context(prec=100)
_MOST_DIGITS = 18  # of a decimal that Spark keeps in a long


def hash_of(values: Sequence[pa.Scalar]) -> int:
    """The hash of a key, as a signed 64-bit integer, 0 without columns. values: of its columns. Raises UserError."""
    if not values:
        return 0
    found = SEED
    for value in values:
        if value.is_valid:
            found = _hasher(value.type)(value, found)
    return found - (1 << 64) if found >> 63 else found


def _hasher(kind: pa.DataType) -> Callable[[pa.Scalar, int], int]:
    types = pa.types
    if types.is_boolean(kind):
        return lambda value, seed: _of_int(int(value.as_py()), seed)
    if types.is_int64(kind):
        return lambda value, seed: _of_long(value.as_py(), seed)
    if types.is_signed_integer(kind):
        return lambda value, seed: _of_int(value.as_py(), seed)
    if types.is_date32(kind) or (types.is_timestamp(kind) and kind.unit == "us"):
        of = _of_int if types.is_date32(kind) else _of_long
        return lambda value, seed: of(value.value, seed)
    if types.is_float32(kind) or types.is_float64(kind):
        return _of_float
    if types.is_decimal128(kind):
        return _of_decimal
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value, seed: _of_bytes(_raw(value.as_py()), seed)
    raise UserError(f"a key of type {kind} cannot be queried")


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _of_float(value: pa.Scalar, seed: int) -> int:
    number = value.as_py()
    number = math.nan if number != number else number + 0.0  # one NaN, and one zero
    if pa.types.is_float32(value.type):
        return _of_int(struct.unpack("<i", struct.pack("<f", number))[0], seed)
    return _of_long(struct.unpack("<q", struct.pack("<d", number))[0], seed)


def _of_decimal(value: pa.Scalar, seed: int) -> int:
    unscaled = int(value.as_py().scaleb(value.type.scale, _EXACT))
    if value.type.precision <= _MOST_DIGITS:
        return _of_long(unscaled, seed)
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return _of_bytes(unscaled.to_bytes(size, "big", signed=True), seed)


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed(value: int) -> int:
    value = ((value ^ value >> 33) * _P2) & _MASK
    value = ((value ^ value >> 29) * _P3) & _MASK
    return value ^ value >> 32


def _of_int(value: int, seed: int) -> int:
    found = (seed + _P5 + 4) & _MASK
    return _mixed((_rotated(found ^ ((value & 0xFFFFFFFF) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK)


def _of_long(value: int, seed: int) -> int:
    return _mixed(_with_word((seed + _P5 + 8) & _MASK, value & _MASK))


def _with_word(found: int, word: int) -> int:
    found ^= _rotated(word * _P2, 31) * _P1 & _MASK
    return (_rotated(found, 27) * _P1 + _P4) & _MASK


def _of_bytes(data: bytes, seed: int) -> int:
    at, size = 0, len(data)
    if size >= 32:
        at = size - size % 32
        found = _of_stripes(data[:at], seed)
    else:
        found = (seed + _P5) & _MASK
    found = (found + size) & _MASK
    while at + 8 <= size:
        found = _with_word(found, int.from_bytes(data[at : at + 8], "little"))
        at += 8
    if at + 4 <= size:
        found ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        found = (_rotated(found, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return _mixed(found)


def _of_stripes(data: bytes, seed: int) -> int:
    lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    for start in range(0, len(words), 4):
        lanes = [
            _rotated(lane + word * _P2, 31) * _P1 & _MASK for lane, word in zip(lanes, words[start:], strict=False)
        ]
    found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        found = ((found ^ (_rotated(lane * _P2, 31) * _P1 & _MASK)) * _P1 + _P4) & _MASK
    return found
