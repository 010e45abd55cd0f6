"""Which stored snapshots of one operator's state the next one may build on. Thread-safe, no I/O.

A chain is a full snapshot and its increments, oldest first. A new increment holds the changes since a checkpoint that
is certainly complete. So nothing is lost whatever happened to the checkpoints in between (aborted, late, unknown):
their changes are newer than that checkpoint, too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from lockgate_common.checksums import is_collision_free
from lockgate_proto.messages import StateHandle

from lockgate_taskmanager.task.program import SnapshotOrder

REMEMBERED = 64  # the most snapshots with an unknown outcome that are kept


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a checkpoint. version: of its state; handles: the full snapshot, then increments."""

    version: int
    handles: tuple[StateHandle, ...]

    @property
    def is_vouched_for(self) -> bool:
        """False for files of older snapshots, of which only a CRC is known: the next snapshot leaves them behind."""
        return all(is_collision_free(handle.checksum) for handle in self.handles if handle.path)


class Chains:
    """The chains of one operator in one subtask."""

    def __init__(self, full_every: int) -> None:
        """full_every: the most snapshots in a chain; 0 or 1: every snapshot is full."""
        self._full_every = full_every
        self._known: dict[int, Chain] = {}
        self._lock = threading.Lock()

    @property
    def is_incremental(self) -> bool:
        """False: no snapshot ever builds on another."""
        return self._full_every > 1

    def base(self, order: SnapshotOrder) -> Chain | None:
        """The chain that the next snapshot builds on; None: it must be full."""
        with self._lock:
            for number in [number for number in self._known if number < order.base_id]:
                del self._known[number]
            chain = self._known.get(order.base_id)
        if chain is None or order.is_savepoint or len(chain.handles) >= self._full_every or not chain.is_vouched_for:
            return None
        return chain

    @property
    def is_begun(self) -> bool:
        """Whether there may be a snapshot to build on."""
        return bool(self._known)

    def stored(self, checkpoint_id: int, chain: Chain) -> None:
        """A checkpoint's part was stored, or restored; it may turn out to be complete."""
        with self._lock:
            self._known[checkpoint_id] = chain
            while len(self._known) > REMEMBERED:
                del self._known[min(self._known)]
