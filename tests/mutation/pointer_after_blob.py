"""A subsumed checkpoint's files are deleted while ZooKeeper still points to them."""

from __future__ import annotations

from lockgate_coordinator.job.effects import DiscardCheckpoint
from lockgate_coordinator.runtime.deletions import Deletions

_discard = Deletions.discard


def _files_first(self: Deletions, effect: DiscardCheckpoint) -> None:
    self._services.removals.delete_pointed(effect.checkpoint.pointer)
    _discard(self, effect)


Deletions.discard = _files_first  # type: ignore[method-assign]
