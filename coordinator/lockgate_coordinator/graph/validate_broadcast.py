"""Validates broadcast state: in every snapshot, each subtask has to have the same.

It follows from two things: one subtask sends the records, so that all receive them in the same order; and aligned
barriers, so that each has received the same number of them when it takes its snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockgate_proto.broadcasts import broadcast_edges, has_broadcast_state
from lockgate_proto.loops import loop_of
from lockgate_proto.messages import CheckpointMode, JobGraph, Vertex

_UNFIT = {
    CheckpointMode.UNALIGNED: "UNALIGNED, in which a barrier overtakes broadcast records in some of them only",
    CheckpointMode.AT_LEAST_ONCE: "AT_LEAST_ONCE, in which a snapshot has broadcast records from after its barrier",
    CheckpointMode.AT_MOST_ONCE: "AT_MOST_ONCE, in which a restart loses broadcast records for good",
}


def broadcast_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of broadcast state, as sentences. graph: normalized."""
    for vertex in graph.vertices:
        for operator in vertex.operators[1:]:
            if has_broadcast_state(operator):
                yield (
                    f"Operator '{operator.id}' has broadcast state, and so must be the first operator of its vertex, "
                    "where both its inputs arrive."
                )
        if vertex.operators and has_broadcast_state(vertex.operators[0]):
            yield from _vertex_problems(graph, vertex)


def _vertex_problems(graph: JobGraph, vertex: Vertex) -> Iterator[str]:
    name = f"Operator '{vertex.operators[0].id}' has broadcast state"
    edges = broadcast_edges(graph, vertex)
    others = [edge for edge in graph.edges if edge.target == vertex.id and edge not in edges]
    if not edges:
        yield f"{name} and no BROADCAST edge, on which its records come: add one."
    elif len(edges) > 1:
        senders = ", ".join(edge.source for edge in edges)
        yield (
            f"{name} from {len(edges)} BROADCAST edges ({senders}), whose records would come in another order in each "
            "subtask: bring them together in one vertex with parallelism 1 first."
        )
    if not others:
        yield f"{name} and no other input: add an edge that is not BROADCAST, with the records to process."
    widths = {sender.id: sender.parallelism for sender in graph.vertices}
    for edge in edges:
        if widths.get(edge.source, 1) > 1:
            yield (
                f"{name} from vertex '{edge.source}' with parallelism {widths[edge.source]}, whose records would come "
                "in another order in each subtask: give it parallelism 1."
            )
    if loop_of(graph, vertex.id):
        yield f"{name}, and is in a loop, where that is not supported: put it in front of the loop or behind it."
    mode = graph.checkpoints.mode if graph.checkpoints is not None else CheckpointMode.EXACTLY_ONCE
    if mode in _UNFIT:
        yield (
            f"{name}, which has to be the same in each subtask, and the job's checkpoint mode is {_UNFIT[mode]}: use "
            "EXACTLY_ONCE."
        )
