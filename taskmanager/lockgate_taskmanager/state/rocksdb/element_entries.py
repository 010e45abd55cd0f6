"""Database entries of the elements of large maps and lists, beside the row of their key. They lie behind the entries of
`time_index`, in the same key groups, so that rows are found without passing over them.

key = key group + 32768 (2 bytes), 4 (1 byte), the key of a row, the name of the element (8 bytes, see `key_payload`)
value = the element
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lockgate_taskmanager.state.format import key_payload
from lockgate_taskmanager.state.rocksdb.engine import Database
from lockgate_taskmanager.task.program import StateUnreadable

_KIND = 4  # behind those of times, and their last bound
_PAYLOAD = 5  # where the payload begins in the value of a row: it is the first column, see `row_codec`
_BEHIND_ALL = b"\xff"  # no name of an element begins so
Entry = tuple[bytes, bytes]


def prefix(name: bytes) -> bytes:
    """What the names of all elements of a row begin with."""
    return bytes((name[0] | 0x80, name[1], _KIND)) + name


def bounds(name: bytes) -> tuple[bytes, bytes]:
    """From where to before where the elements of a row are."""
    start = prefix(name)
    return start, start + _BEHIND_ALL


def joined(database: Database, rows: Iterable[Entry]) -> Iterator[Entry]:
    """Rows of a database, with their elements behind the payload."""
    for name, value in rows:
        if _is_apart(value):
            behind = _behind(value)
            payload = b"".join((value[_PAYLOAD:behind], *database.values(*bounds(name))))
            yield name, _with_payload(value, behind, payload)
        else:
            yield name, value


def whole(database: Database, rows: Iterable[Entry]) -> Iterator[Entry]:
    """Rows of a database as they would be without elements apart. Raises StateUnreadable."""
    for name, value in joined(database, rows):
        if _is_apart(value):
            behind = _behind(value)
            try:
                payload = key_payload.whole(value[_PAYLOAD:behind])
            except Exception as error:  # whatever bytes make of the reader
                raise StateUnreadable(f"the state of a key cannot be read: {str(error)[:200]}") from error
            yield name, _with_payload(value, behind, payload)
        else:
            yield name, value


def _is_apart(value: bytes) -> bool:
    return value[_PAYLOAD : _PAYLOAD + 1] == key_payload.MARK


def _behind(value: bytes) -> int:
    """Where the payload ends."""
    return _PAYLOAD + int.from_bytes(value[1:_PAYLOAD], "little")


def _with_payload(value: bytes, behind: int, payload: bytes) -> bytes:
    return b"".join((value[:1], len(payload).to_bytes(_PAYLOAD - 1, "little"), payload, value[behind:]))
