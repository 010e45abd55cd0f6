"""An increment builds on the newest snapshot that was stored, complete or not."""

from __future__ import annotations

from dataclasses import replace

from lockgate_taskmanager.state.chains import Chain, Chains
from lockgate_taskmanager.task.program import SnapshotOrder

_base = Chains.base


def _newest(self: Chains, order: SnapshotOrder) -> Chain | None:
    return _base(self, replace(order, base_id=max(self._known, default=0)))


Chains.base = _newest  # type: ignore[method-assign]
