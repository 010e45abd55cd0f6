"""A job graph at another parallelism than it was submitted with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lockgate_proto.messages import JobGraph, VertexParallelism

from coordinator.graph.validate import validate


def reshape(graph: JobGraph, wanted: Iterable[VertexParallelism]) -> JobGraph:
    """The same graph with these vertices at these parallelisms. graph: normalized: nothing else depends on them."""
    by_id = {one.vertex_id: one.parallelism for one in wanted}
    vertices = (replace(one, parallelism=by_id.get(one.id, one.parallelism)) for one in graph.vertices)
    return replace(graph, vertices=tuple(vertices))


def shape(graph: JobGraph) -> tuple[VertexParallelism, ...]:
    """The parallelism of every vertex, in graph order."""
    return tuple(VertexParallelism(one.id, one.parallelism) for one in graph.vertices)


def merged(before: Iterable[VertexParallelism], more: Iterable[VertexParallelism]) -> tuple[VertexParallelism, ...]:
    """Both orders as one; the later one wins."""
    by_id: Mapping[str, int] = {one.vertex_id: one.parallelism for one in (*before, *more)}
    return tuple(VertexParallelism(name, parallelism) for name, parallelism in sorted(by_id.items()))


def reshape_problems(graph: JobGraph, wanted: Iterable[VertexParallelism]) -> tuple[str, ...]:
    """Every reason why the graph cannot have these parallelisms, as sentences."""
    listed = tuple(wanted)
    names = [one.id for one in graph.vertices]
    if not listed:
        return ("No vertex is named: say which one is to have how many subtasks.",)
    unknown = [one.vertex_id for one in listed if one.vertex_id not in names]
    if unknown:
        return (f"The job has no vertex '{unknown[0]}'; it has {', '.join(names)}.",)
    return tuple(validate(reshape(graph, listed)))
