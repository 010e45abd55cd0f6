"""Validates a job graph; problems are sentences for a pipeline author."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from lockgate_proto.loops import is_feedback, spread_of
from lockgate_proto.messages import (
    CountWindow,
    Deduplicate,
    Edge,
    JobGraph,
    KeyedAggregate,
    KeyedProcess,
    Operator,
    Partitioning,
    SocketSource,
    Vertex,
    WindowProcess,
)
from lockgate_proto.operators import is_keyed, is_sink, is_source, kind_of

from lockgate_coordinator.graph.bounds import MAX_PARALLELISM, bound_problems
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.validate_broadcast import broadcast_problems
from lockgate_coordinator.graph.validate_event_time import event_time_problems
from lockgate_coordinator.graph.validate_join import join_edge_problems
from lockgate_coordinator.graph.validate_loops import loop_problems
from lockgate_coordinator.graph.validate_operator import operator_problems
from lockgate_coordinator.graph.validate_options import option_problems
from lockgate_coordinator.graph.validate_side_outputs import side_output_problems

_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


def validate(graph: JobGraph) -> tuple[str, ...]:
    """Every problem of `graph`, each a sentence; empty when it can run. Takes it as submitted or normalized."""
    if problems := bound_problems(graph):
        return problems
    graph = normalize(graph)
    if not graph.vertices:
        return ("The job is empty: it needs at least a source and a sink.",)
    return (
        *_id_problems(graph),
        *(text for vertex in graph.vertices for text in _vertex_problems(vertex)),
        *_edge_problems(graph),
        *_connection_problems(graph),
        *event_time_problems(graph),
        *side_output_problems(graph),
        *join_edge_problems(graph),
        *broadcast_problems(graph),
        *loop_problems(graph),
        *option_problems(graph),
    )


def duplicates(names: Sequence[str]) -> list[str]:
    """Names that occur more than once, each once, in order. Column names are compared without case."""
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
                yield f"'{name}' is not an id: 1 to 100 of the characters A-Z a-z 0-9 . _ - are allowed ({kind})."


def _vertex_problems(vertex: Vertex) -> Iterator[str]:
    name = f"Vertex '{vertex.id}'"
    if vertex.parallelism < 1:
        yield f"{name} has parallelism {vertex.parallelism}: at least 1 is needed."
    if not 1 <= vertex.max_parallelism <= MAX_PARALLELISM:
        yield f"{name} has max_parallelism {vertex.max_parallelism}: it must be between 1 and {MAX_PARALLELISM}."
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
    if isinstance(operator.kind, SocketSource) and vertex.parallelism > 1:
        yield (
            f"Source '{operator.id}' reads from one connection, so vertex '{vertex.id}' cannot have parallelism "
            f"{vertex.parallelism}: give it 1 and distribute its records with a REBALANCE or HASH edge."
        )
    if position > 0 and is_keyed(operator):
        yield f"{_called(operator)} must be the first operator of its vertex, after a HASH edge."
    if position < len(vertex.operators) - 1 and is_sink(operator):
        yield f"Sink '{operator.id}' is not the last operator of vertex '{vertex.id}': a sink has no output."


def _edge_problems(graph: JobGraph) -> Iterator[str]:
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    for (source, target), count in Counter((edge.source, edge.target) for edge in graph.edges).items():
        if count > 1:
            yield f"{count} edges go from '{source}' to '{target}': at most one is allowed."
    for edge in graph.edges:
        for end in dict.fromkeys((edge.source, edge.target)):
            if end not in vertices:
                yield f"The edge {edge.source} -> {edge.target} names a vertex '{end}' that does not exist."
        yield from _partitioning_problems(edge, vertices.get(edge.source), vertices.get(edge.target))


def _partitioning_problems(edge: Edge, source: Vertex | None, target: Vertex | None) -> Iterator[str]:
    name = f"The edge {edge.source} -> {edge.target}"
    if edge.partitioning is Partitioning.PARTITIONING_UNSPECIFIED:
        yield f"{name} has no partitioning: choose FORWARD, HASH, REBALANCE, BROADCAST or FEEDBACK."
    if spread_of(edge) is Partitioning.HASH:
        if not edge.keys or not all(edge.keys):
            yield f"{name} is HASH but names no keys."
        for key in duplicates(edge.keys):
            yield f"{name} names the key '{key}' twice."
    elif edge.keys:
        yield f"{name} has keys ({', '.join(edge.keys)}), but only HASH edges use keys."
    forward = spread_of(edge) is Partitioning.FORWARD
    if forward and source is not None and target is not None and source.parallelism != target.parallelism:
        yield (
            f"{name} is FORWARD, but the parallelism differs ({source.parallelism} and {target.parallelism}): "
            f"make them equal or use REBALANCE."
        )


def _connection_problems(graph: JobGraph) -> Iterator[str]:
    if not any(is_sink(operator) for vertex in graph.vertices for operator in vertex.operators):
        yield "The job has no sink: its results would be lost."
    for vertex in graph.vertices:
        if not vertex.operators:
            continue
        inputs = [edge for edge in graph.edges if edge.target == vertex.id and not is_feedback(edge)]
        outputs = [edge for edge in graph.edges if edge.source == vertex.id and not edge.side_output]
        first, last = vertex.operators[0], vertex.operators[-1]
        if is_source(first) and inputs:
            yield f"Vertex '{vertex.id}' begins with source '{first.id}', but records of other vertices flow into it."
        if not is_source(first) and not inputs:
            yield f"Vertex '{vertex.id}' has neither a source nor an input{_besides_feedback(graph, vertex)}."
        if is_sink(last) and outputs:
            yield f"Vertex '{vertex.id}' ends with sink '{last.id}', but an edge leaves it; nothing leaves a sink."
        if not is_sink(last) and not outputs:
            yield f"The records of vertex '{vertex.id}' are not used: add a sink or an edge."
        if isinstance(first.kind, KeyedAggregate | KeyedProcess | WindowProcess | CountWindow | Deduplicate):
            yield from _keyed_input_problems(first, first.kind.keys, inputs)


def _besides_feedback(graph: JobGraph, vertex: Vertex) -> str:
    return " from outside its loop" if any(edge.target == vertex.id for edge in graph.edges) else ""


def _keyed_input_problems(operator: Operator, keys: tuple[str, ...], inputs: Sequence[Edge]) -> Iterator[str]:
    for edge in inputs:
        if edge.partitioning is not Partitioning.HASH or edge.keys != keys:
            yield (
                f"{_called(operator)} needs HASH input on its keys ({', '.join(keys)}), in this order; "
                f"the edge {edge.source} -> {edge.target} is {edge.partitioning.name}"
                + (f" on ({', '.join(edge.keys)})." if edge.keys else ".")
            )


def _called(operator: Operator) -> str:
    """An operator with keyed state, at the beginning of a sentence."""
    kind = kind_of(operator)
    assert kind is not None
    return f"{kind.called} '{operator.id}'"
