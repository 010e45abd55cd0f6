"""Which stored snapshots of an object's parts the next one may build on, and what has changed since. Thread-safe.

As with `state.chains`, a snapshot holds the changes since a checkpoint that is certainly complete. So the changes of
each barrier are kept until a checkpoint that has them is complete. The base is a list of places, not of files to be
applied in order: each snapshot names the place of every part, and a restore reads each part once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from lockgate_taskmanager.state.parts.stored_part import Part, StoredPart
from lockgate_taskmanager.task.program import SnapshotOrder

REMEMBERED = 64  # the most snapshots with an unknown outcome that are kept
_MOST_KEPT = 1_000  # changed parts, where the state does not have more of them


class KeptPart:
    """The bytes of a changed part: made once, and kept until a checkpoint that has them is complete."""

    def __init__(self, part: Part) -> None:
        self._part: Part | None = part  # until its bytes are made
        self._data = b""
        self._lock = threading.Lock()

    def data(self) -> bytes:
        """On the thread that stores it."""
        with self._lock:
            if self._part is not None:
                self._data, self._part = self._part.make(), None
            return self._data


Changes = Mapping[str, KeptPart | None]
"""By name; None: the part is gone."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a snapshot builds on. parts: of a completed checkpoint; changes: everything that has changed since."""

    parts: Mapping[str, StoredPart]
    changes: Changes


class PartLog:
    """Of one object in one subtask."""

    def __init__(self) -> None:
        self._stored: dict[int, Mapping[str, StoredPart]] = {}
        self._changes: dict[int, Changes] = {}  # by the checkpoint whose barrier ended them
        self._unknown_to = 0  # changes up to the barrier of this checkpoint are not known
        self._lock = threading.Lock()

    def changed(self, checkpoint_id: int, changes: Changes) -> None:
        """At a barrier: what has changed since the last one."""
        with self._lock:
            self._changes[checkpoint_id] = changes
            most = max(_MOST_KEPT, 2 * max(map(len, self._stored.values()), default=0))
            while sum(map(len, self._changes.values())) > most or len(self._changes) > REMEMBERED:
                oldest = min(self._changes)
                self._unknown_to = max(self._unknown_to, oldest)
                del self._changes[oldest]

    def forget(self, checkpoint_id: int) -> None:
        """At a barrier: what has changed since the last one is not known."""
        with self._lock:
            self._unknown_to = max(self._unknown_to, checkpoint_id)
            self._changes.clear()

    def distrust(self, checkpoint_id: int) -> None:
        """A file that this checkpoint refers to is damaged: the next snapshot is whole."""
        with self._lock:
            self._unknown_to = max(self._unknown_to, checkpoint_id + 1)

    def base(self, order: SnapshotOrder) -> Base | None:
        """What the next snapshot builds on; None: it must be whole."""
        if order.is_savepoint:
            return None
        with self._lock:
            self._stored = {number: parts for number, parts in self._stored.items() if number >= order.base_id}
            self._changes = {number: changes for number, changes in self._changes.items() if number > order.base_id}
            parts = self._stored.get(order.base_id)
            if parts is None or order.base_id < self._unknown_to:
                return None
            merged: dict[str, KeptPart | None] = {}
            for number in sorted(self._changes):
                merged.update(self._changes[number])
            return Base(parts, merged)

    def stored(self, checkpoint_id: int, parts: Mapping[str, StoredPart]) -> None:
        """A checkpoint's part was stored, or restored; it may turn out to be complete."""
        with self._lock:
            self._stored[checkpoint_id] = parts
            while len(self._stored) > REMEMBERED:
                del self._stored[min(self._stored)]
