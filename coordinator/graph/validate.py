"""Everything that is wrong with a job graph, in sentences that a pipeline author understands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from lockgate_proto.messages import Edge, JobGraph, KeyedAggregate, Operator, Partitioning, Vertex

from coordinator.graph.normalize import normalize
from coordinator.graph.shape import is_sink, is_source
from coordinator.graph.validate_operator import operator_problems
from coordinator.graph.validate_options import option_problems

MAX_PARALLELISM = 32_768
_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


def validate(graph: JobGraph) -> tuple[str, ...]:
    """Every problem of `graph`, each a sentence; empty when it can run. Takes it as submitted or normalized."""
    graph = normalize(graph)
    if not graph.vertices:
        return ("The job is empty: it needs at least a source and a sink.",)
    return (
        *_id_problems(graph),
        *(text for vertex in graph.vertices for text in _vertex_problems(vertex)),
        *_edge_problems(graph),
        *_connection_problems(graph),
        *_cycle_problems(graph),
        *option_problems(graph),
    )


def duplicates(names: Sequence[str]) -> list[str]:
    """Names that occur more than once, each once, in order. Column names count as equal whatever their case."""
    counts = Counter(name.casefold() for name in names)
    seen = {name.casefold(): name for name in reversed(names)}
    return [seen[name] for name, count in counts.items() if count > 1]


def _id_problems(graph: JobGraph) -> Iterator[str]:
    for kind, ids in (
        ("vertices", [vertex.id for vertex in graph.vertices]),
        ("operators", [operator.id for vertex in graph.vertices for operator in vertex.operators]),
    ):
        for name, count in Counter(ids).items():
            if count > 1:
                yield f"{count} {kind} have the id '{name}': every id may be used once."
        for name in ids:
            if not _ID.fullmatch(name):
                yield f"'{name}' is no id: 1 to 100 of the characters A-Z a-z 0-9 . _ - are allowed ({kind})."


def _vertex_problems(vertex: Vertex) -> Iterator[str]:
    name = f"Vertex '{vertex.id}'"
    if vertex.parallelism < 1:
        yield f"{name} has parallelism {vertex.parallelism}: at least 1 is needed."
    if not 1 <= vertex.max_parallelism <= MAX_PARALLELISM:
        yield f"{name} has max_parallelism {vertex.max_parallelism}: 1 to {MAX_PARALLELISM} are possible."
    elif vertex.parallelism > vertex.max_parallelism:
        yield (
            f"{name} has parallelism {vertex.parallelism}, more than its max_parallelism {vertex.max_parallelism}: "
            f"lower the one or raise the other."
        )
    if not vertex.operators:
        yield f"{name} has no operators."
    for position, operator in enumerate(vertex.operators):
        yield from _place_problems(vertex, position, operator)
        yield from operator_problems(operator)


def _place_problems(vertex: Vertex, position: int, operator: Operator) -> Iterator[str]:
    if position > 0 and is_source(operator):
        yield f"Source '{operator.id}' is not the first operator of vertex '{vertex.id}': records cannot flow into it."
    if position > 0 and isinstance(operator.kind, KeyedAggregate):
        yield f"Aggregate '{operator.id}' has to be the first operator of its vertex, behind a HASH edge."
    if position < len(vertex.operators) - 1 and is_sink(operator):
        yield f"Sink '{operator.id}' is not the last operator of vertex '{vertex.id}': nothing comes out of a sink."


def _edge_problems(graph: JobGraph) -> Iterator[str]:
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    for (source, target), count in Counter((edge.source, edge.target) for edge in graph.edges).items():
        if count > 1:
            yield f"{count} edges go from '{source}' to '{target}': one is possible."
    for edge in graph.edges:
        for end in dict.fromkeys((edge.source, edge.target)):
            if end not in vertices:
                yield f"The edge {edge.source} -> {edge.target} names a vertex '{end}' that does not exist."
        yield from _partitioning_problems(edge, vertices.get(edge.source), vertices.get(edge.target))


def _partitioning_problems(edge: Edge, source: Vertex | None, target: Vertex | None) -> Iterator[str]:
    name = f"The edge {edge.source} -> {edge.target}"
    if edge.partitioning is Partitioning.PARTITIONING_UNSPECIFIED:
        yield f"{name} has no partitioning: choose FORWARD, HASH, REBALANCE or BROADCAST."
    if edge.partitioning is Partitioning.HASH:
        if not edge.keys or not all(edge.keys):
            yield f"{name} is HASH but names no keys."
        for key in duplicates(edge.keys):
            yield f"{name} names the key '{key}' twice."
    elif edge.keys:
        yield f"{name} has keys ({', '.join(edge.keys)}), but only HASH edges use keys."
    forward = edge.partitioning is Partitioning.FORWARD
    if forward and source is not None and target is not None and source.parallelism != target.parallelism:
        yield (
            f"{name} is FORWARD, but the parallelism differs ({source.parallelism} and {target.parallelism}): "
            f"make them equal or use REBALANCE."
        )


def _connection_problems(graph: JobGraph) -> Iterator[str]:
    if not any(is_sink(operator) for vertex in graph.vertices for operator in vertex.operators):
        yield "The job has no sink: nobody would see its results."
    for vertex in graph.vertices:
        if not vertex.operators:
            continue
        inputs = [edge for edge in graph.edges if edge.target == vertex.id]
        outputs = [edge for edge in graph.edges if edge.source == vertex.id]
        first, last = vertex.operators[0], vertex.operators[-1]
        if is_source(first) and inputs:
            yield f"Vertex '{vertex.id}' begins with source '{first.id}', but records of other vertices flow into it."
        if not is_source(first) and not inputs:
            yield f"Vertex '{vertex.id}' has neither a source nor an input."
        if is_sink(last) and outputs:
            yield f"Vertex '{vertex.id}' ends with sink '{last.id}', but an edge leaves it; nothing leaves a sink."
        if not is_sink(last) and not outputs:
            yield f"The records of vertex '{vertex.id}' go nowhere: add a sink or an edge."
        if isinstance(first.kind, KeyedAggregate):
            yield from _aggregate_input_problems(first, first.kind, inputs)


def _aggregate_input_problems(operator: Operator, kind: KeyedAggregate, inputs: Sequence[Edge]) -> Iterator[str]:
    for edge in inputs:
        if edge.partitioning is not Partitioning.HASH or edge.keys != kind.keys:
            yield (
                f"Aggregate '{operator.id}' needs HASH input on its keys ({', '.join(kind.keys)}), in this order; "
                f"the edge {edge.source} -> {edge.target} is {edge.partitioning.name}"
                + (f" on ({', '.join(edge.keys)})." if edge.keys else ".")
            )


def _cycle_problems(graph: JobGraph) -> Iterator[str]:
    """Takes away vertices without inputs until none is left; what remains is a cycle or lies behind one."""
    remaining = {vertex.id for vertex in graph.vertices}
    edges = [edge for edge in graph.edges if edge.source in remaining and edge.target in remaining]
    while free := remaining - {edge.target for edge in edges}:
        remaining -= free
        edges = [edge for edge in edges if edge.source in remaining]
    while ends := remaining - {edge.source for edge in edges}:
        remaining -= ends
        edges = [edge for edge in edges if edge.target in remaining]
    if remaining:
        yield f"The vertices {', '.join(sorted(remaining))} form a cycle; loops are not possible."
