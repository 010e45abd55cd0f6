"""Changes the parallelism of a job graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lockgate_proto.messages import JobGraph, ObjectState, Operator, VertexParallelism
from lockgate_proto.operators import object_state_of

from lockgate_coordinator.graph.validate import validate


def reshape(graph: JobGraph, wanted: Iterable[VertexParallelism]) -> JobGraph:
    """The same graph with these vertices at these parallelisms. graph: normalized, so nothing else depends on them."""
    by_id = {vertex_parallelism.vertex_id: vertex_parallelism.parallelism for vertex_parallelism in wanted}
    vertices = (replace(vertex, parallelism=by_id.get(vertex.id, vertex.parallelism)) for vertex in graph.vertices)
    return replace(graph, vertices=tuple(vertices))


def shape(graph: JobGraph) -> tuple[VertexParallelism, ...]:
    """The parallelism of every vertex, in graph order."""
    return tuple(VertexParallelism(vertex.id, vertex.parallelism) for vertex in graph.vertices)


def merged(before: Iterable[VertexParallelism], more: Iterable[VertexParallelism]) -> tuple[VertexParallelism, ...]:
    """Both orders as one; the later one wins."""
    by_id: Mapping[str, int] = {
        vertex_parallelism.vertex_id: vertex_parallelism.parallelism for vertex_parallelism in (*before, *more)
    }
    return tuple(VertexParallelism(name, parallelism) for name, parallelism in sorted(by_id.items()))


def reshape_problems(graph: JobGraph, wanted: Iterable[VertexParallelism]) -> tuple[str, ...]:
    """Every reason why the graph cannot have these parallelisms, as sentences."""
    listed = tuple(wanted)
    names = dict.fromkeys(vertex.id for vertex in graph.vertices)
    if not listed:
        return ("No vertex is named: name at least one, with its number of subtasks.",)
    unknown = [
        vertex_parallelism.vertex_id for vertex_parallelism in listed if vertex_parallelism.vertex_id not in names
    ]
    if unknown:
        return (f"The job has no vertex '{unknown[0]}'; it has {', '.join(names)}.",)
    reshaped = reshape(graph, listed)
    pairs = zip(graph.vertices, reshaped.vertices, strict=True)
    changed = [before for before, after in pairs if before.parallelism != after.parallelism]
    operators = [operator for vertex in changed for operator in vertex.operators]
    return (*map(_indivisible, filter(_is_indivisible, operators)), *validate(reshaped))


def _is_indivisible(operator: Operator) -> bool:
    return object_state_of(operator) is ObjectState.OBJECT_STATE_FIXED


def _indivisible(operator: Operator) -> str:
    return (
        f"The state of the object of operator '{operator.id}' cannot be divided among another number of subtasks: let "
        'snapshot_state() return a list, and give the object the attribute on_rescale = "split" or "union".'
    )
