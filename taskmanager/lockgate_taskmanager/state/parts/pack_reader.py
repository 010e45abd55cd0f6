"""Reads parts out of the files of a snapshot.

A file whose bytes are nearly all in use is read whole. Of another one only the parts in use are read, so that what a
restore reads does not grow with what is outdated. Each part is verified by itself in either case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from lockgate_proto.messages import StateHandle

from lockgate_taskmanager.state.backend import load, load_ranges
from lockgate_taskmanager.state.parts.stored_part import StoredPart, digest
from lockgate_taskmanager.task.program import StateUnreadable

_IS_WHOLE = 0.9  # of its bytes are wanted: then the rest is read with them
_SMALL = 64 << 10  # bytes: of a file of that size the rest is always read with them


def read_parts(parts: Sequence[tuple[str, StoredPart]]) -> Iterator[tuple[str, StoredPart, bytes]]:
    """The bytes of parts, file by file, and in a file in their order. Raises StateUnreadable, StorageUnavailable."""
    ordered = sorted(parts, key=lambda item: (item[1].handle.path, item[1].handle.checksum, item[1].offset))
    for handle, group in groupby(ordered, key=lambda item: item[1].handle):
        wanted = list(group)
        for (name, part), data in zip(wanted, _pieces(handle, [part for _, part in wanted]), strict=True):
            if len(data) != part.size_bytes or digest(data) != part.digest:
                file = handle.path or "the inlined state of a checkpoint"
                raise StateUnreadable(
                    f"the state file {file} is corrupt: its part '{name}' is not as it was stored; restore from"
                    " another checkpoint"
                )
            yield name, part, data


def _pieces(handle: StateHandle, parts: Sequence[StoredPart]) -> Iterator[bytes]:
    size = sum(part.size_bytes for part in parts)
    if handle.path and handle.size_bytes > _SMALL and size < _IS_WHOLE * handle.size_bytes:
        yield from load_ranges(handle, [(part.offset, part.size_bytes) for part in parts])
        return
    (whole,) = load_ranges(handle, [(0, handle.size_bytes)]) if handle.path else (load(handle).to_pybytes(),)
    for part in parts:
        yield whole[part.offset : part.offset + part.size_bytes]
