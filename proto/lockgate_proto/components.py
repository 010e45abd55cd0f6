"""The components of a job graph: no edge leads from one of them to another."""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.messages import JobGraph


def components(graph: JobGraph) -> tuple[JobGraph, ...]:
    """Each with its own vertices and edges, and the job's options; ordered as their first vertices are."""
    owner = {vertex.id: vertex.id for vertex in graph.vertices}
    for edge in graph.edges:
        kept, former = owner[edge.source], owner[edge.target]
        owner = {name: kept if known == former else known for name, known in owner.items()}
    if len(set(owner.values())) < 2:
        return (graph,)
    return tuple(
        replace(
            graph,
            vertices=tuple(vertex for vertex in graph.vertices if owner[vertex.id] == known),
            edges=tuple(edge for edge in graph.edges if owner[edge.source] == known),
        )
        for known in dict.fromkeys(owner[vertex.id] for vertex in graph.vertices)
    )


def component_of(graph: JobGraph, vertex_id: str) -> JobGraph:
    """The one with this vertex; the graph for none."""
    found = (known for known in components(graph) if any(vertex.id == vertex_id for vertex in known.vertices))
    return next(found, graph)
