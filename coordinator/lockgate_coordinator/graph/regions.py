"""Whether the slots of a job depend on each other.

Subtask i of every vertex is in slot i. Where records go forward only, from subtask i to subtask i, no record crosses
from one slot to another: each slot is a region, and one that fails restarts without the others.
"""

from __future__ import annotations

from lockgate_proto.loops import spread_of
from lockgate_proto.messages import JobGraph, Partitioning
from lockgate_proto.parts import company

from lockgate_coordinator.graph.shape import slots_needed


def connection(graph: JobGraph) -> str:
    """Why its slots depend on each other, as a clause; "" when each of them can restart without the others.

    graph: normalized.
    """
    if slots_needed(graph) < 2:
        return "it has one slot"
    for edge in graph.edges:
        if spread_of(edge) is not Partitioning.FORWARD:
            return f"every subtask of '{edge.target}' reads from every subtask of '{edge.source}'"
    return company(graph)
