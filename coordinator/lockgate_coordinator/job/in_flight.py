"""Whether in-flight records of a snapshot fit the channels of the job.

    both ends as they were     each channel exists again and gets its records back
    another number of either   HASH, to a keyed operator: each new subtask takes the rows of its key groups
                               REBALANCE: any subtask may take them
                               back edge: the log of a loop, which any subtask of its head may process
                               others: refused

Rows on a HASH edge to another operator do not contain the hash of their key. On a FORWARD edge the order of a key holds
only if its rows stay in their lane, and which one that is, the rows do not say. What was broadcast has been processed
by some subtasks and not by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lockgate_proto.loops import is_feedback, spread_of
from lockgate_proto.messages import ChannelSide, CheckpointMetadata, Edge, JobGraph, Partitioning, VertexShape
from lockgate_proto.operators import is_keyed

Ends = tuple[str, str]
"""Vertex ids of the source and the target of an edge."""

_BOUND = {
    Partitioning.HASH: "records that go by key to an operator that is not keyed do not contain the hash of their key",
    Partitioning.FORWARD: "records of a FORWARD edge stay with the subtask that has them",
    Partitioning.BROADCAST: "broadcast records have reached some subtasks and not others",
}


class InFlightMisfit(Exception):
    """An attempt cannot restore the records in flight of its snapshot; str() is for the job's author."""


def holds_in_flight(metadata: CheckpointMetadata | None) -> bool:
    """True when the snapshot has channel state other than the logs of loops, which fit any parallelism."""
    return metadata is not None and bool(set(_channels(metadata)))


def check_in_flight(graph: JobGraph, metadata: CheckpointMetadata | None) -> None:
    """Raises InFlightMisfit when `metadata` has channel state for which `graph`, normalized, has no channels."""
    problems = in_flight_misfits(graph, metadata) if metadata is not None else ()
    if problems:
        raise InFlightMisfit("\n".join(problems))


def in_flight_misfits(graph: JobGraph, metadata: CheckpointMetadata) -> tuple[str, ...]:
    """Why the channel state of an unaligned snapshot cannot be restored into `graph`, as sentences.

    graph: normalized. A snapshot without channel state always fits.
    """
    lost = sorted(
        (channel.vertex_id, state.vertex_id)
        for state in metadata.subtasks
        for channel in state.channels
        if channel.feedback and back_edge(graph, channel.vertex_id, state.vertex_id) is None
    )
    if lost:
        return (
            f"The snapshot contains records that were returning from '{lost[0][0]}' to '{lost[0][1]}' in a loop, "
            f"and the job has no FEEDBACK edge between these vertices: leave the loop as it was.",
        )
    wanted = set(_channels(metadata))
    moved = moved_edges(graph, metadata) if wanted else frozenset()
    there = {(edge.source, edge.target): edge for edge in graph.edges}
    keys = {(input_.source, shape.vertex_id): input_.keys for shape in metadata.vertices for input_ in shape.inputs}
    for source, target in sorted(wanted):
        ends = (source[0], target[0])
        edge = there.get(ends)
        is_moved = ends in moved
        if edge is None or (spread_of(edge) is Partitioning.FORWARD and source[1] != target[1] and not is_moved):
            return (
                _sentence(
                    f"records go from {source[0]}-{source[1]} to {target[0]}-{target[1]}, which no edge connects"
                ),
            )
        if edge.partitioning is Partitioning.HASH and keys.get(ends, edge.keys) != edge.keys:
            return (
                _sentence(
                    f"records from '{ends[0]}' to '{ends[1]}' were distributed {_by(keys[ends])}, and are now "
                    f"distributed {_by(edge.keys)}"
                ),
            )
        if is_moved and (reason := _bound(graph, ends)):
            changed = _widths(shape for shape in metadata.vertices if shape.vertex_id in ends)
            return (_sentence(f"{changed} in the snapshot, and {reason}"),)
    return ()


def moved_edges(graph: JobGraph, metadata: CheckpointMetadata) -> frozenset[Ends]:
    """The edges of `graph` whose channels are not those of the snapshot: an end has another number of subtasks."""
    return _moved(graph, {shape.vertex_id: (shape.parallelism, shape.max_parallelism) for shape in metadata.vertices})


def may_hold_back(before: JobGraph, metadata: CheckpointMetadata | None, graph: JobGraph) -> bool:
    """True when records in flight could not be restored into `graph`, whichever channels they are in.

    They are in flight in `before`, the same job at another parallelism, or in the snapshot that it has started from.
    """
    shapes = {vertex.id: (vertex.parallelism, vertex.max_parallelism) for vertex in before.vertices}
    moved = _moved(graph, shapes) | (moved_edges(graph, metadata) if metadata is not None else frozenset())
    return any(_bound(graph, ends) for ends in moved)


def back_edge(graph: JobGraph, source: str, target: str) -> Edge | None:
    """The FEEDBACK edge between two vertices."""
    found = (edge for edge in graph.edges if is_feedback(edge) and (edge.source, edge.target) == (source, target))
    return next(found, None)


def _moved(graph: JobGraph, before: Mapping[str, tuple[int, int]]) -> frozenset[Ends]:
    now = {vertex.id: (vertex.parallelism, vertex.max_parallelism) for vertex in graph.vertices}
    changed = {name for name, shape in now.items() if before.get(name, shape) != shape}
    return frozenset((edge.source, edge.target) for edge in graph.edges if {edge.source, edge.target} & changed)


def _bound(graph: JobGraph, ends: Ends) -> str:
    """Why records in flight between two vertices fit no other channels; "" when they do."""
    target = next(vertex for vertex in graph.vertices if vertex.id == ends[1])
    for edge in graph.edges:
        if (edge.source, edge.target) != ends or is_feedback(edge) or edge.partitioning is Partitioning.REBALANCE:
            continue
        if edge.partitioning is not Partitioning.HASH or not is_keyed(target.operators[0]):
            return _BOUND[edge.partitioning]
    return ""


def _channels(metadata: CheckpointMetadata) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    for state in metadata.subtasks:
        here = (state.vertex_id, state.subtask)
        for channel in state.channels:
            if channel.feedback:
                continue
            there = (channel.vertex_id, channel.subtask)
            yield (there, here) if channel.side is ChannelSide.INPUT_CHANNEL else (here, there)


def _by(keys: Sequence[str]) -> str:
    return f"by key ({', '.join(keys)})" if keys else "in turn"


def _widths(shapes: Iterable[VertexShape]) -> str:
    return ", ".join(f"vertex '{shape.vertex_id}' has parallelism {shape.parallelism}" for shape in shapes)


def _sentence(reason: str) -> str:
    return (
        f"The snapshot is unaligned and holds records in flight, which only fit the same channels: {reason}. "
        f"Start from a savepoint, which never contains any, or leave the job as it was."
    )
