"""Of a subtask's key groups that several subtasks own after a rescale, the last of these gets nothing."""

from __future__ import annotations

from lockgate_coordinator.job import redistribute
from lockgate_coordinator.job.redistribute import Origin
from lockgate_proto.messages import Vertex

_heirs = redistribute._heirs


def _all_but_one(then: int, origin: Origin, vertex: Vertex) -> list[int]:
    found = _heirs(then, origin, vertex)
    return found[:-1] if len(found) > 1 else found


redistribute._heirs = _all_but_one
