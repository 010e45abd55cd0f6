"""Whether the slots of a job depend on each other.

Subtask i of every vertex is in slot i. Where records go forward only, from subtask i to subtask i, no record crosses
from one slot to another: each slot is a region, and one that fails restarts without the others.
"""

from __future__ import annotations

from lockgate_proto.loops import spread_of
from lockgate_proto.messages import (
    CheckpointMode,
    ForeachBatchSink,
    JobGraph,
    ObjectState,
    Operator,
    Partitioning,
    PythonSink,
)
from lockgate_proto.operators import object_state_of

from lockgate_coordinator.graph.shape import slots_needed

_SHARED = frozenset({ObjectState.OBJECT_STATE_UNION, ObjectState.OBJECT_STATE_BROADCAST})


def connection(graph: JobGraph) -> str:
    """Why its slots depend on each other, as a clause; "" when each of them can restart without the others.

    graph: normalized.
    """
    if slots_needed(graph) < 2:
        return "it has one slot"
    for edge in graph.edges:
        if spread_of(edge) is not Partitioning.FORWARD:
            return f"every subtask of '{edge.target}' reads from every subtask of '{edge.source}'"
    if graph.checkpoints is not None and graph.checkpoints.mode is CheckpointMode.AT_MOST_ONCE:
        return "its checkpoints are AT_MOST_ONCE"
    return next((why for vertex in graph.vertices for operator in vertex.operators if (why := _common(operator))), "")


def _common(operator: Operator) -> str:
    """What the subtasks of an operator have in common beside records, as a clause; "" for nothing."""
    if isinstance(operator.kind, ForeachBatchSink | PythonSink):
        return f"the code of sink '{operator.id}' may fence off all calls with a lower number of the attempt"
    if object_state_of(operator) in _SHARED:
        return f"the subtasks of '{operator.id}' share the state of its object"
    return ""
