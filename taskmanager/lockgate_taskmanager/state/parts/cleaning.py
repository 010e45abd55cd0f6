"""Which parts are stored once more, so that outdated bytes and files stay few. Pure.

A file stays as long as one of its parts is in use. Where less than a third of a file is, the rest moves to the newest
file, in steps that are not larger than the changes; and where there are many files, sixteen small ones become one. Both
happen while a snapshot is stored in the background. With changes all over the state, a part is then written about one
and a half times for each change, and the storage settles at less than twice the state.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockgate_proto.messages import StateHandle

from lockgate_taskmanager.state.parts.stored_part import StoredPart

MOST_FILES = 256
_MERGED = 16
_SMALL_BYTES = 2 << 20  # files that are merged: a sixteenth of a full one
_ONE_OF = 3  # the share of a file that is in use, below which it is given up
_LEAST_BYTES = 1 << 20  # a step is at least so large


def to_move(parts: Mapping[str, StoredPart], changed_bytes: int) -> list[str]:
    """Names of parts to store again. parts: all but those that are stored anyway, whose size is changed_bytes."""
    by_file: dict[StateHandle, list[str]] = {}
    for name, part in parts.items():
        by_file.setdefault(part.handle, []).append(name)
    live = {handle: sum(parts[name].size_bytes for name in names) for handle, names in by_file.items()}
    found: list[str] = []
    small = sorted((handle for handle in live if live[handle] <= _SMALL_BYTES), key=lambda handle: live[handle])
    if len(by_file) >= MOST_FILES and len(small) >= _MERGED:  # fewer would be written again and again
        for handle in small[:_MERGED]:
            found += by_file.pop(handle)
    budget = max(changed_bytes, _LEAST_BYTES)
    sparse = [handle for handle in by_file if live[handle] * _ONE_OF < handle.size_bytes]
    for handle in sorted(sparse, key=lambda handle: live[handle] / handle.size_bytes):
        for name in by_file[handle]:
            if budget <= 0:
                return found
            found.append(name)
            budget -= parts[name].size_bytes
    return found
