"""Changes that were in an aborted checkpoint are not in the next one."""

from __future__ import annotations

from lockgate_taskmanager.state.parts.part_log import Changes, PartLog

_changed = PartLog.changed


def _only_newest(self: PartLog, checkpoint_id: int, changes: Changes) -> None:
    self._changes.clear()
    _changed(self, checkpoint_id, changes)


PartLog.changed = _only_newest  # type: ignore[method-assign]
