"""The components of a job graph."""

from __future__ import annotations

from lockgate_proto.components import component_of, components
from lockgate_proto.messages import Edge, JobGraph, Partitioning, Vertex


def graph(*edges: tuple[str, str], names: str = "abcde") -> JobGraph:
    found = tuple(Edge(before, behind, Partitioning.FORWARD) for before, behind in edges)
    return JobGraph("parts", tuple(Vertex(name) for name in names), found)


def names(found: JobGraph) -> str:
    return "".join(vertex.id for vertex in found.vertices)


def test_a_graph_whose_vertices_are_all_connected_is_its_own_component() -> None:
    whole = graph(("a", "e"), ("b", "e"), ("b", "c"), ("d", "c"))
    assert components(whole) == (whole,)
    assert components(JobGraph()) == (JobGraph(),)


def test_each_component_has_its_vertices_edges_and_the_options_of_the_job() -> None:
    first, second, third = components(graph(("a", "c"), ("d", "b"), ("c", "a")))
    assert [names(found) for found in (first, second, third)] == ["ac", "bd", "e"]
    assert [(edge.source, edge.target) for edge in first.edges] == [("a", "c"), ("c", "a")]
    assert [(edge.source, edge.target) for edge in second.edges] == [("d", "b")]
    assert (third.edges, third.name) == ((), "parts")


def test_the_component_of_a_vertex_is_found_by_its_id() -> None:
    parts = graph(("a", "c"), ("d", "b"))
    assert [names(component_of(parts, name)) for name in "abcde"] == ["ac", "bd", "ac", "bd", "e"]
    assert component_of(parts, "x") is parts
