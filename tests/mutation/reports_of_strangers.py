"""Whoever reports on a subtask of the attempt is believed, wherever it runs."""

from __future__ import annotations

from lockgate_coordinator.graph.execution_graph import ExecutionGraph
from lockgate_proto.messages import SubtaskId


def _runs_on(self: ExecutionGraph, subtask: SubtaskId | None, _task_manager_id: str) -> bool:
    return self.owns(subtask)


def _uses(_self: ExecutionGraph, _task_manager_id: str) -> bool:
    return True


assert hasattr(ExecutionGraph, "runs_on")
ExecutionGraph.runs_on = _runs_on  # type: ignore[method-assign]
ExecutionGraph.uses = _uses  # type: ignore[method-assign]
