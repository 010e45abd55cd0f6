"""An attempt that a task manager does not run any more when it comes back is not missed."""

from __future__ import annotations

from lockgate_proto.messages import AttemptId

from coordinator.runtime.link import Registration
from coordinator.runtime.task_managers import TaskManager, TaskManagers

_readmit = TaskManagers._readmit


def _trusting(self: TaskManagers, known: TaskManager, registration: Registration) -> None:
    listener = self._listener
    added = listener.task_manager_added

    def all_there(task_manager: TaskManager, _forgotten: frozenset[AttemptId]) -> None:
        added(task_manager, frozenset())

    listener.task_manager_added = all_there  # type: ignore[method-assign]
    try:
        _readmit(self, known, registration)
    finally:
        listener.task_manager_added = added  # type: ignore[method-assign]


TaskManagers._readmit = _trusting  # type: ignore[method-assign]
