"""The place of one part in a snapshot's files, and the index that a snapshot has of its parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import ObjectIndex, OperatorState, StateHandle, StatePart

from lockgate_taskmanager.state.backend import load
from lockgate_taskmanager.task.program import StateUnreadable

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class StoredPart:
    """handle: of the file; offset, size_bytes: of the part in it; items: how many it has, where it is a list."""

    handle: StateHandle
    offset: int
    size_bytes: int
    digest: bytes
    items: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is not stored yet. make: its bytes; called once, on the thread that stores it."""

    name: str
    make: Callable[[], bytes]
    items: int = 0


Parts = Callable[[], Iterator[Part]]
"""Makes the parts of a whole state, one after another, so that they need not all be in memory."""


def digest(data: bytes) -> bytes:
    """By which a part is verified when it is read."""
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]


def indexed(about: ObjectIndex, parts: Mapping[str, StoredPart]) -> tuple[bytes, tuple[StateHandle, ...]]:
    """The bytes of an index, and the files that it refers to. about: everything but the parts."""
    files: dict[StateHandle, int] = {}
    entries = tuple(
        StatePart(
            name, files.setdefault(part.handle, len(files)), part.offset, part.size_bytes, part.digest, part.items
        )
        for name, part in parts.items()
    )
    return encode(replace(about, parts=entries)), tuple(files)


def read_index(state: OperatorState) -> tuple[ObjectIndex, dict[str, StoredPart]]:
    """The index of a stored state, and its parts by name. Raises StateUnreadable, StorageUnavailable."""
    handle = state.handle or StateHandle()
    where = handle.path or f"of operator '{state.operator_id}' inside the checkpoint"
    try:
        index = decode(ObjectIndex, load(handle).to_pybytes())
    except MalformedMessage as error:
        raise StateUnreadable(f"the state {where} cannot be read: {error}") from error
    found: dict[str, StoredPart] = {}
    for part in index.parts:
        is_there = 0 <= part.file < len(state.files) and part.offset >= 0 and part.size_bytes >= 0
        if not is_there or part.offset + part.size_bytes > state.files[part.file].size_bytes:
            raise StateUnreadable(f"the state {where} cannot be read: its part '{part.name}' is in none of its files")
        found[part.name] = StoredPart(
            state.files[part.file], part.offset, part.size_bytes, part.digest, max(0, part.items)
        )
    return index, found
