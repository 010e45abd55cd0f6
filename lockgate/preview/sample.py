"""A job graph as a preview runs it: one subtask each, sources that end, and sinks that only collect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from lockgate_proto.messages import FileSource, GeneratorSource, JobGraph, Operator, Partitioning, PythonSink
from lockgate_proto.operators import is_sink

from lockgate.errors import UserError


class NoPreview(UserError):
    """The job cannot be previewed."""


def sampled(graph: JobGraph, rows: int, collector: Callable[[str], bytes]) -> JobGraph:
    """The graph for a preview. rows: what a generator makes; collector: a pickled sink for an operator's id.

    Raises NoPreview for a job with a loop.
    """
    if any(edge.partitioning is Partitioning.FEEDBACK for edge in graph.edges):
        raise NoPreview("a preview cannot run a loop; submit the job to a `lockgate cluster` instead")

    def previewed(operator: Operator) -> Operator:
        match operator.kind:
            case GeneratorSource() as kind:
                return replace(operator, kind=_ended(kind, rows))
            case FileSource() as kind:
                return replace(operator, kind=replace(kind, continuous=False))
        if is_sink(operator):
            return replace(operator, kind=PythonSink(collector(operator.id), "preview"))
        return operator

    vertices = tuple(
        replace(vertex, parallelism=1, operators=tuple(map(previewed, vertex.operators))) for vertex in graph.vertices
    )
    return replace(graph, vertices=vertices, state_backend=None)


def sinks(graph: JobGraph) -> Mapping[str, str]:
    """The names of the sinks by their ids, in the order of the graph."""
    return {
        operator.id: operator.name for vertex in graph.vertices for operator in vertex.operators if is_sink(operator)
    }


def _ended(kind: GeneratorSource, rows: int) -> GeneratorSource:
    partitions = kind.partitions or 1
    each = -(-rows // partitions)
    return replace(
        kind,
        partitions=partitions,
        rows_per_partition=min(each, kind.rows_per_partition or each),
        rows_per_second=0,
    )
