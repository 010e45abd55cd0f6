"""A subsumed checkpoint's files are deleted while ZooKeeper still points to them."""

from __future__ import annotations

from lockgate_proto.messages import JobRecord

from coordinator.recovery.effects import DiscardCheckpoint
from coordinator.runtime.persistence import Persistence

_discard = Persistence.discard_checkpoint


def _files_first(self: Persistence, record: JobRecord, effect: DiscardCheckpoint) -> None:
    self._files.delete_pointed(effect.checkpoint.pointer)
    _discard(self, record, effect)


Persistence.discard_checkpoint = _files_first  # type: ignore[method-assign]
