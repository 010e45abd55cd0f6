"""A snapshot of parts builds on the newest one that was stored, complete or not."""

from __future__ import annotations

from dataclasses import replace

from lockgate_taskmanager.state.parts.part_log import Base, PartLog
from lockgate_taskmanager.task.program import SnapshotOrder

_base = PartLog.base


def _newest(self: PartLog, order: SnapshotOrder) -> Base | None:
    return _base(self, replace(order, base_id=max(self._stored, default=0)))


PartLog.base = _newest  # type: ignore[method-assign]
