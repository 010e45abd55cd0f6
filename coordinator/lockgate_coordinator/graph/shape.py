"""Queries on a job graph that several machines use."""

from __future__ import annotations

from lockgate_common.amounts import counted
from lockgate_proto.messages import (
    FileSource,
    InputShape,
    JobGraph,
    KafkaSource,
    Operator,
    PythonSource,
    Vertex,
    VertexShape,
)
from lockgate_proto.operators import commits, is_source


def source_vertices(graph: JobGraph) -> tuple[Vertex, ...]:
    """Vertices whose first operator is a source."""
    return tuple(vertex for vertex in graph.vertices if vertex.operators and is_source(vertex.operators[0]))


def slots_needed(graph: JobGraph) -> int:
    """One slot holds one subtask of each vertex, so the highest parallelism decides."""
    return max((vertex.parallelism for vertex in graph.vertices), default=0)


def subtasks(graph: JobGraph) -> tuple[tuple[str, int], ...]:
    """(vertex id, subtask index) of every subtask, in graph order."""
    return tuple((vertex.id, index) for vertex in graph.vertices for index in range(vertex.parallelism))


def committers(graph: JobGraph) -> tuple[tuple[str, int], ...]:
    """The subtasks that commit when a checkpoint is complete, in graph order."""
    sinks = {vertex.id for vertex in graph.vertices if any(map(commits, vertex.operators))}
    return tuple(key for key in subtasks(graph) if key[0] in sinks)


def vertex_shapes(graph: JobGraph) -> tuple[VertexShape, ...]:
    """The vertex shapes that a snapshot of this graph must match on restore."""
    return tuple(
        VertexShape(
            vertex_id=vertex.id,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            operator_ids=tuple(operator.id for operator in vertex.operators),
            inputs=tuple(InputShape(edge.source, edge.keys) for edge in graph.edges if edge.target == vertex.id),
        )
        for vertex in graph.vertices
    )


def poll_interval_ms(source: Operator) -> int | None:
    """How often a source is asked for new splits; None: once. Of a normalized graph."""
    kind = source.kind
    if isinstance(kind, KafkaSource):
        return None if kind.bounded else kind.poll_interval_ms
    return kind.poll_interval_ms if isinstance(kind, FileSource | PythonSource) and kind.continuous else None


def slots_text(needed: int, found: tuple[int, int] | None = None) -> str:
    """What a job waits for. found: free slots, and task managers."""
    free = f", {found[0]} free in {counted(found[1], 'task manager')}" if found is not None else ""
    return f"needs {counted(needed, 'slot')}{free}"
