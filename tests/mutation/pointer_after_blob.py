"""A subsumed checkpoint's files are deleted while ZooKeeper still points to them."""

from __future__ import annotations

from coordinator.recovery.effects import DiscardCheckpoint
from coordinator.runtime.persistence import Persistence

_discard = Persistence.discard_checkpoint


def _files_first(self: Persistence, key: str, effect: DiscardCheckpoint) -> None:
    self._files.delete_pointed(effect.checkpoint.pointer)
    _discard(self, key, effect)


Persistence.discard_checkpoint = _files_first  # type: ignore[method-assign]
