"""Changelogs, which emit the new value of a key each time it changes, and operators that would add these values up.

A keyed aggregate emits the value so far again and again, and so do windows that late records change or a trigger fires
early without purging. An operator that replaces by key (an upsert, a maximum of growing values) handles such a stream
correctly. A count, a sum or an average includes every intermediate value, and their number depends on where
micro-batches end.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockgate_proto.broadcasts import record_edges
from lockgate_proto.messages import (
    AggregateFunction,
    CountWindow,
    EarlyFiringWindow,
    JobGraph,
    KeyedAggregate,
    Operator,
    PythonTransform,
    RecordFunction,
    SqlTransform,
    TriggeredWindow,
    Vertex,
)

_TRANSFORMS = (SqlTransform, PythonTransform, RecordFunction)
_ADDING = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVG)


def added_up(graph: JobGraph) -> Iterator[tuple[str, str]]:
    """Ids of operators that add up the values of a changelog, each with the id of the operator that emits it."""
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    for vertex in graph.vertices:
        if (first := _head(vertex)) is None or not _is_changelog(first):
            continue
        for target in _takers(graph, vertices, vertex):
            head = _head(target)
            if head is not None and _adds(head):
                yield head.id, first.id


def _takers(graph: JobGraph, vertices: dict[str, Vertex], vertex: Vertex) -> list[Vertex]:
    """The vertices that receive the rows of `vertex` directly, or through transforms only."""
    found, edges = list[Vertex](), record_edges(graph)
    more, seen = [vertex.id], {vertex.id}
    while more:
        source = more.pop()
        for edge in edges:
            if edge.source != source or edge.target in seen or edge.side_output:
                continue
            seen.add(edge.target)
            target = vertices[edge.target]
            found.append(target)
            if all(isinstance(operator.kind, _TRANSFORMS) for operator in target.operators[:1]):
                more.append(target.id)
    return found


def _head(vertex: Vertex) -> Operator | None:
    return vertex.operators[0] if vertex.operators else None


def _is_changelog(operator: Operator) -> bool:
    kind = operator.kind
    if not isinstance(kind, KeyedAggregate):
        return False
    window = kind.window
    if window is None or window.allowed_lateness_ms > 0:
        return True
    return isinstance(window.kind, TriggeredWindow | EarlyFiringWindow) and not window.kind.purge


def _adds(operator: Operator) -> bool:
    kind = operator.kind
    return isinstance(kind, KeyedAggregate | CountWindow) and any(
        aggregate.function in _ADDING for aggregate in kind.aggregates
    )
