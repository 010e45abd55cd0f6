"""Questions about a job graph that more than one machine asks."""

from __future__ import annotations

from lockgate_proto.messages import (
    ConsoleSink,
    FileSink,
    FileSource,
    ForeachBatchSink,
    GeneratorSource,
    JobGraph,
    Operator,
    PythonTransform,
    SqlSink,
    Vertex,
    VertexShape,
)

SOURCES = (FileSource, GeneratorSource)
SINKS = (FileSink, SqlSink, ConsoleSink, ForeachBatchSink)


def is_source(operator: Operator) -> bool:
    """True for operators that read from outside."""
    return isinstance(operator.kind, SOURCES)


def is_sink(operator: Operator) -> bool:
    """True for operators that write to outside."""
    return isinstance(operator.kind, SINKS)


def source_vertices(graph: JobGraph) -> tuple[Vertex, ...]:
    """Vertices whose first operator is a source."""
    return tuple(vertex for vertex in graph.vertices if vertex.operators and is_source(vertex.operators[0]))


def slots_needed(graph: JobGraph) -> int:
    """One slot holds one subtask of each vertex, so the highest parallelism decides."""
    return max((vertex.parallelism for vertex in graph.vertices), default=0)


def subtasks(graph: JobGraph) -> tuple[tuple[str, int], ...]:
    """(vertex id, subtask index) of every subtask, in graph order."""
    return tuple((vertex.id, index) for vertex in graph.vertices for index in range(vertex.parallelism))


def vertex_shapes(graph: JobGraph) -> tuple[VertexShape, ...]:
    """What a snapshot of this graph has to match on restore."""
    return tuple(
        VertexShape(
            vertex_id=vertex.id,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            operator_ids=tuple(operator.id for operator in vertex.operators),
        )
        for vertex in graph.vertices
    )


def has_pickled_code(graph: JobGraph) -> bool:
    """True when the graph carries Python functions, which only authenticated clients may submit."""
    kinds = (operator.kind for vertex in graph.vertices for operator in vertex.operators)
    return any(isinstance(kind, PythonTransform | ForeachBatchSink) for kind in kinds)
