"""Validates interval joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockgate_proto.messages import Edge, IntervalJoin, JobGraph, JoinSide, Operator, Partitioning, Vertex
from lockgate_proto.reserved import is_reserved

from lockgate_coordinator.graph.bounds import MAX_DURATION_MS

_SIDES = (JoinSide.LEFT, JoinSide.RIGHT)


def join_problems(kind: IntervalJoin) -> Iterator[str]:
    """The problems of one join's settings; the caller puts the operator's name in front."""
    for side, keys, time in (("left", kind.left_keys, kind.left_time), ("right", kind.right_keys, kind.right_time)):
        if not keys or not all(keys):
            yield f"joins by key but names no keys of the {side} side."
        for name in keys:
            if is_reserved(name, is_key=True):
                yield f"joins by the column '{name}', whose name is reserved: choose another."
        if not time.strip():
            yield f"joins by event time but has none of the {side} side: name the column, or give an SQL expression."
    if kind.left_keys and kind.right_keys and len(kind.left_keys) != len(kind.right_keys):
        yield (
            f"joins {len(kind.left_keys)} key columns ({', '.join(kind.left_keys)}) with {len(kind.right_keys)} "
            f"({', '.join(kind.right_keys)}): both sides need the same number, in the same order."
        )
    for name, value in (("lower_ms", kind.lower_ms), ("upper_ms", kind.upper_ms)):
        if not -MAX_DURATION_MS <= value <= MAX_DURATION_MS:
            yield f"has {name} {value}: it must be between {-MAX_DURATION_MS} and {MAX_DURATION_MS}."
    if kind.lower_ms > kind.upper_ms:
        yield (
            f"joins from {kind.lower_ms} ms to {kind.upper_ms} ms, which is an empty interval: "
            "lower_ms must not be more than upper_ms."
        )


def join_edge_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of the inputs of joins, as sentences. graph: normalized."""
    for vertex in graph.vertices:
        inputs = [edge for edge in graph.edges if edge.target == vertex.id]
        join = _join_of(vertex)
        if join is not None:
            yield from _input_problems(*join, inputs)
        for edge in inputs if join is None else ():
            if edge.join_side is not JoinSide.JOIN_SIDE_UNSPECIFIED:
                yield (
                    f"The edge {edge.source} -> {edge.target} is declared as the {_side_name(edge.join_side)} side "
                    f"of a join, but vertex '{vertex.id}' does not begin with one."
                )


def _input_problems(operator: Operator, kind: IntervalJoin, inputs: Sequence[Edge]) -> Iterator[str]:
    for edge in inputs:
        name = f"the edge {edge.source} -> {edge.target}"
        if edge.join_side not in _SIDES:
            yield f"Join '{operator.id}' has a left and a right side, and {name} does not say which."
            continue
        keys = kind.left_keys if edge.join_side is JoinSide.LEFT else kind.right_keys
        if edge.partitioning is not Partitioning.HASH or edge.keys != keys:
            yield (
                f"Join '{operator.id}' needs HASH input on the keys of its {_side_name(edge.join_side)} side "
                f"({', '.join(keys)}), in this order; {name} is {edge.partitioning.name}"
                + (f" on ({', '.join(edge.keys)})." if edge.keys else ".")
            )
    for side in _SIDES:
        if not any(edge.join_side is side for edge in inputs):
            yield f"Join '{operator.id}' has no input on its {_side_name(side)} side: it joins two streams."


def _join_of(vertex: Vertex) -> tuple[Operator, IntervalJoin] | None:
    first = vertex.operators[0] if vertex.operators else None
    return (first, first.kind) if first is not None and isinstance(first.kind, IntervalJoin) else None


def _side_name(side: JoinSide) -> str:
    return side.name.lower()
