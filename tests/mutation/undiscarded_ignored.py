"""Shared files are deleted though a record that may refer to them could not be."""

from __future__ import annotations

from lockgate_coordinator.job.effects import DiscardCheckpoint
from lockgate_coordinator.runtime.deletions import Deletions

_record_deleted = Deletions._record_deleted


def _careless(self: Deletions, effect: DiscardCheckpoint, error: BaseException | None) -> None:
    kept, self._undiscarded = self._undiscarded, {}
    _record_deleted(self, effect, error)
    kept.update(self._undiscarded)
    if error is None:
        kept.pop(effect.checkpoint.checkpoint_id, None)
    self._undiscarded = kept


Deletions._record_deleted = _careless  # type: ignore[method-assign]
