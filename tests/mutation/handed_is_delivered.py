"""What was handed over shortly before a stream broke counts as delivered."""

from __future__ import annotations

from lockgate_proto.messages import CoordinatorMessage

from coordinator.runtime.link import TaskManagerLink

_take_undelivered = TaskManagerLink.take_undelivered


def _queued_only(self: TaskManagerLink) -> tuple[CoordinatorMessage, ...]:
    self._handed.clear()
    return _take_undelivered(self)


TaskManagerLink.take_undelivered = _queued_only  # type: ignore[method-assign]
