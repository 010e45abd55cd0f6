"""Which slots of a job depend on each other.

Subtask i of every vertex is in slot i. Where records go forward only, from subtask i to subtask i, no record crosses
from one slot to another: each slot is a region, and one that fails restarts without the others. The components of a job
depend on each other only where they share slots.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from lockgate_proto.components import components
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import JobGraph, Partitioning, TaskManagerFailover
from lockgate_proto.parts import company, whole_because

from lockgate_coordinator.graph.shape import slots_needed

Slots = frozenset[int]


def connection(component: JobGraph) -> str:
    """Why its slots depend on each other, as a clause; "" when each of them can restart without the others.

    component: of a normalized graph.
    """
    if slots_needed(component) < 2:
        return "it has one slot"
    for edge in component.edges:
        if spread_of(edge) is not Partitioning.FORWARD:
            return f"every subtask of '{edge.target}' reads from every subtask of '{edge.source}'"
    return company(component)


def bond(component: JobGraph) -> str:
    """Why all of it restarts together, as a clause; "" when a part of it can restart."""
    connected = connection(component)
    is_part = component.task_manager_failover is TaskManagerFailover.TASK_MANAGER_FAILOVER_PART
    if not connected or not is_part or slots_needed(component) < 2:
        return connected
    return whole_because(component)


def bond_of_all(graph: JobGraph) -> str:
    """Why the whole job always restarts, as a clause; "" when it need not. All components have slot 0."""
    found = components(graph)
    return bond(max(found, key=slots_needed)) if all(map(bond, found)) else ""


def exchanges_in_part(graph: JobGraph) -> bool:
    """Whether what restarts may exchange records with what runs on."""
    return any(connection(component) and not bond(component) for component in components(graph))


def affected(graph: JobGraph, slots: Collection[int], beside: Callable[[Slots], Slots]) -> tuple[Slots, str]:
    """The slots that restart if these do, and why these are more, as a clause or "".

    beside: all slots on the task managers of some, whose subtasks exchange records without a log.
    """
    found, because = frozenset(slots), ""
    while True:
        more, why = _drawn_in(graph, found, beside)
        if more <= found:
            return found, because
        found, because = found | more, because or why


def _drawn_in(graph: JobGraph, slots: Slots, beside: Callable[[Slots], Slots]) -> tuple[Slots, str]:
    """Slots of the first component that needs more of them than these, and why; else nothing."""
    for component in components(graph):
        own = frozenset(range(slots_needed(component)))
        if not connection(component) or not own & slots:
            continue
        why = bond(component)
        more = own if why else own & beside(own & slots)
        if not more <= slots:
            return more, why
    return frozenset(), ""
