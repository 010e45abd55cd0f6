"""Validates loops. Anything that is not known to work in a loop is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockgate_proto.broadcasts import record_edges
from lockgate_proto.loops import before, behind, is_feedback, loops, spread_of
from lockgate_proto.messages import (
    CheckpointMode,
    CountWindow,
    Deduplicate,
    Edge,
    EventTime,
    IntervalJoin,
    JobGraph,
    KeyedAggregate,
    KeyedProcess,
    Operator,
    Partitioning,
    Vertex,
    Window,
    WindowProcess,
)
from lockgate_proto.operators import is_sink, is_source, kind_of

_SPREADS = (Partitioning.FORWARD, Partitioning.HASH, Partitioning.REBALANCE)


def loop_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of cycles and FEEDBACK edges, as sentences. graph: normalized."""
    yield from _cycle_problems(graph)
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    for edge in graph.edges:
        if is_feedback(edge):
            yield from _feedback_problems(graph, edge)
        elif edge.feedback:
            yield f"{_name(edge)} sets `feedback`, but is {edge.partitioning.name}: leave `feedback` out."
    found = loops(graph)
    for loop in found:
        members = [vertices[name] for name in sorted(loop) if name in vertices]
        yield from _member_problems(graph, members)
        yield from _behind_problems(graph, loop)
    if found and graph.checkpoints is not None and graph.checkpoints.mode is CheckpointMode.AT_LEAST_ONCE:
        yield "The job has a loop, and checkpoints at least once: a loop needs EXACTLY_ONCE or UNALIGNED."


def _cycle_problems(graph: JobGraph) -> Iterator[str]:
    """Removes vertices without inputs until none is left; the rest is a cycle, or downstream of one."""
    forward = [edge for edge in graph.edges if not is_feedback(edge)]
    remaining = {vertex.id for vertex in graph.vertices}
    edges = [edge for edge in forward if edge.source in remaining and edge.target in remaining]
    while free := remaining - {edge.target for edge in edges}:
        remaining -= free
        edges = [edge for edge in edges if edge.source in remaining]
    while ends := remaining - {edge.source for edge in edges}:
        remaining -= ends
        edges = [edge for edge in edges if edge.target in remaining]
    if remaining:
        yield (
            f"The vertices {', '.join(sorted(remaining))} form a cycle: the edge that closes a loop has to be FEEDBACK."
        )


def _feedback_problems(graph: JobGraph, edge: Edge) -> Iterator[str]:
    name = _name(edge)
    forward = [edge for edge in graph.edges if not is_feedback(edge)]
    if edge.source not in behind(forward, edge.target):
        yield f"{name} is FEEDBACK, but no records come from '{edge.target}' to '{edge.source}': it closes no loop."
    if spread_of(edge) not in _SPREADS:
        yield f"{name} is FEEDBACK by {spread_of(edge).name}: it must be FORWARD, HASH or REBALANCE."
    if edge.side_output:
        yield f"{name} is FEEDBACK of the side output '{edge.side_output}': only results can go back."


def _member_problems(graph: JobGraph, members: Sequence[Vertex]) -> Iterator[str]:
    """The problems of operators inside: they may emit records only in response to records."""
    names = {vertex.id for vertex in members}
    heads = {edge.target for edge in graph.edges if is_feedback(edge)}
    for vertex in members:
        for operator in vertex.operators:
            if reason := _why_not_inside(operator):
                yield f"Operator '{operator.id}' is in the loop of {', '.join(sorted(names))}: {reason}."
        if vertex.id in heads and vertex.operators and not _can_head(vertex.operators[0]):
            yield (
                f"The loop goes back to '{vertex.operators[0].id}', which is not a transform: put one in front of it, "
                f"for example the SQL 'SELECT * FROM input', and connect the back edge to it."
            )
    if not any(edge.source in names and edge.target not in names for edge in graph.edges):
        yield f"No edge leaves the loop of {', '.join(sorted(names))}: its results would be lost."
    if not any(edge.target in names and edge.source not in names for edge in graph.edges):
        yield f"No edge enters the loop of {', '.join(sorted(names))}: it needs an input from outside."


def _why_not_inside(operator: Operator) -> str:
    """Why an operator cannot be in a loop, as the end of a sentence; "" for those that can.

    What is inside emits records in answer to records, and at no other time: the end of the loop is found by rounds in
    which no record returns, and a record that is emitted later would come back to operators that have ended. Nor does
    anything inside get event time: a record may return at any age, so no watermark holds on the way back.
    """
    kind = operator.kind
    match kind:
        case KeyedAggregate(window=None) | CountWindow() | Deduplicate() | KeyedProcess(without_timers=True):
            return ""
        case KeyedAggregate(window=Window(processing_time=True)) | WindowProcess(window=Window(processing_time=True)):
            return (
                "its windows emit when the clock has reached their ends, and by then the loop may have been found "
                "empty and ended; put it behind the loop"
            )
        case KeyedAggregate() | WindowProcess():
            return (
                "its windows need a watermark, and none passes through a loop, because a record may return at any age; "
                "put it in front of the loop"
            )
        case KeyedProcess():
            return (
                "its function may set timers, and when one fires the loop may have been found empty and ended; use a "
                "function without on_timer, or put it behind the loop"
            )
        case IntervalJoin():
            return (
                "it needs a watermark to forget old records, and none passes through a loop; put it in front of the "
                "loop"
            )
        case EventTime():
            return (
                "it declares event time, and a watermark does not hold for records that return at any age; declare it "
                "behind the source"
            )
        case _ if is_source(operator):
            return "it reads from outside, so the loop would not be empty before it ends; put it in front of the loop"
        case _ if is_sink(operator):
            return "nothing returns from a sink; put it behind the loop"
        case _:
            return "" if _can_head(operator) else "it is not known to emit records only in answer to records"


def _can_head(operator: Operator) -> bool:
    kind = kind_of(operator)
    return kind is not None and kind.can_head_loop


def _behind_problems(graph: JobGraph, loop: frozenset[str]) -> Iterator[str]:
    """The problems of operators behind a loop. Event time does not pass a loop: the age of its records is unknown."""
    for vertex in graph.vertices:
        if vertex.id in loop or not loop & before(record_edges(graph), vertex.id):
            continue
        for operator in vertex.operators:
            if _needs_event_time(operator):
                yield (
                    f"Operator '{operator.id}' needs event time, but is behind the loop of "
                    f"{', '.join(sorted(loop))}, through which no watermark passes: put it in front."
                )


def _needs_event_time(operator: Operator) -> bool:
    kind = operator.kind
    if isinstance(kind, KeyedAggregate | WindowProcess):
        return kind.window is not None and not kind.window.processing_time
    return isinstance(kind, IntervalJoin)


def _name(edge: Edge) -> str:
    return f"The edge {edge.source} -> {edge.target}"
