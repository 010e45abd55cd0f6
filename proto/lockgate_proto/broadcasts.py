"""Which vertices have broadcast state, and which of their inputs it is made of: the same for whoever asks."""

from __future__ import annotations

from lockgate_proto.messages import Edge, JobGraph, ObjectState, Operator, Partitioning, Vertex
from lockgate_proto.operators import object_state_of


def has_broadcast_state(operator: Operator) -> bool:
    """True for a function whose object is given the records of a broadcast input."""
    return object_state_of(operator) is ObjectState.OBJECT_STATE_BROADCAST


def broadcast_edges(graph: JobGraph, vertex: Vertex) -> tuple[Edge, ...]:
    """The inputs of which the vertex makes broadcast state; none if its first operator has no such state."""
    if not vertex.operators or not has_broadcast_state(vertex.operators[0]):
        return ()
    return tuple(
        edge for edge in graph.edges if edge.target == vertex.id and edge.partitioning is Partitioning.BROADCAST
    )


def broadcast_senders(graph: JobGraph, vertex_id: str) -> frozenset[str]:
    """The vertices whose records become broadcast state of this one."""
    found = (broadcast_edges(graph, vertex) for vertex in graph.vertices if vertex.id == vertex_id)
    return frozenset(edge.source for edges in found for edge in edges)


def record_edges(graph: JobGraph) -> tuple[Edge, ...]:
    """The edges whose records can come out of their target again: all but those of broadcast state."""
    silent = {edge for vertex in graph.vertices for edge in broadcast_edges(graph, vertex)}
    return tuple(edge for edge in graph.edges if edge not in silent)
