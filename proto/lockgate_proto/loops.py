"""Which vertices of a job graph form loops, and how records go over their back edges: the same for whoever asks.

A loop is a set of vertices that records may go round in, over at least one FEEDBACK edge. The targets of its FEEDBACK
edges are its heads. Loops that share a vertex are one.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockgate_proto.messages import Edge, JobGraph, Partitioning


def is_feedback(edge: Edge) -> bool:
    """True for the edge that closes a loop."""
    return edge.partitioning is Partitioning.FEEDBACK


def spread_of(edge: Edge) -> Partitioning:
    """How an edge spreads its records over the subtasks of its target, a back edge as well."""
    if not is_feedback(edge):
        return edge.partitioning
    return edge.feedback or (Partitioning.HASH if edge.keys else Partitioning.FORWARD)


def loops(graph: JobGraph) -> tuple[frozenset[str], ...]:
    """The vertex ids of each loop; a vertex is in one of them at most."""
    found: list[frozenset[str]] = []
    for edge in graph.edges:
        if is_feedback(edge) and not any(edge.target in item for item in found):
            members = behind(graph.edges, edge.target) & before(graph.edges, edge.target)
            if edge.source in members:
                found.append(frozenset(members))
    return tuple(found)


def loop_of(graph: JobGraph, vertex_id: str) -> frozenset[str]:
    """The loop that a vertex is in; empty for none."""
    return next((loop for loop in loops(graph) if vertex_id in loop), frozenset())


def heads_of(graph: JobGraph, loop: frozenset[str]) -> frozenset[str]:
    """The vertices of a loop that its back edges lead to."""
    return frozenset(edge.target for edge in graph.edges if is_feedback(edge) and edge.target in loop)


def behind(edges: Iterable[Edge], vertex_id: str) -> set[str]:
    """The vertex and every one that its records can reach."""
    listed, found = tuple(edges), {vertex_id}
    while more := {edge.target for edge in listed if edge.source in found} - found:
        found |= more
    return found


def before(edges: Iterable[Edge], vertex_id: str) -> set[str]:
    """The vertex and every one whose records can reach it."""
    listed, found = tuple(edges), {vertex_id}
    while more := {edge.source for edge in listed if edge.target in found} - found:
        found |= more
    return found
