"""Database entries that find keys in order of time. They have key groups of their own, after all others.

key = key group + 32768 (2 bytes), which time (1 byte), the time + 2^63 (8 bytes, big-endian), the key of a row
"""

from __future__ import annotations

from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.rocksdb.frozen_database import GROUP_BYTES, group_key

_TIME_BYTES = 8
_INDEX_BYTES = GROUP_BYTES + 1 + _TIME_BYTES


def index_key(group: int) -> bytes:
    """A lower bound of the entries of that key group and all later ones."""
    return group_key(group | 1 << 15) if group < 1 << 15 else b"\xff" * (GROUP_BYTES + 1)


def bound(group: int, kind: int, time_ms: int) -> bytes:
    """A lower bound of the entries at that time or later."""
    if time_ms > NEVER:
        kind, time_ms = kind + 1, -NEVER
    return index_key(group) + bytes([kind]) + time_key(time_ms)


def entry(kind: int, time: bytes, name: bytes) -> bytes:
    """The entry of a row. time: see `time_key`; name: its key."""
    return bytes((name[0] | 0x80, name[1], kind)) + time + name


def time_of(data: bytes) -> int:
    """The time of an entry, milliseconds."""
    return of_time_key(data[GROUP_BYTES + 1 : _INDEX_BYTES])


def name_of(data: bytes) -> bytes:
    """The row's key."""
    return data[_INDEX_BYTES:]


def time_key(time_ms: int) -> bytes:
    """A 64-bit time as 8 bytes in the same order."""
    return (time_ms + (1 << 63)).to_bytes(_TIME_BYTES, "big")


def of_time_key(data: bytes) -> int:
    """The inverse of `time_key`."""
    return int.from_bytes(data, "big") - (1 << 63)
