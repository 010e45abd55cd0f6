"""Whether in-flight records of a snapshot fit the channels of the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockgate_proto.loops import is_feedback, spread_of
from lockgate_proto.messages import ChannelSide, CheckpointMetadata, Edge, JobGraph, Partitioning, VertexShape


class InFlightMisfit(Exception):
    """An attempt cannot restore the records in flight of its snapshot; str() is for the job's author."""


def holds_in_flight(metadata: CheckpointMetadata | None) -> bool:
    """True when the snapshot has channel state that fits no other parallelism. The logs of loops fit any."""
    return metadata is not None and bool(set(_channels(metadata)))


def check_in_flight(graph: JobGraph, metadata: CheckpointMetadata | None) -> None:
    """Raises InFlightMisfit when `metadata` has channel state for which `graph`, normalized, has no channels."""
    problems = in_flight_misfits(graph, metadata) if metadata is not None else ()
    if problems:
        raise InFlightMisfit("\n".join(problems))


def in_flight_misfits(graph: JobGraph, metadata: CheckpointMetadata) -> tuple[str, ...]:
    """Why the channel state of an unaligned snapshot cannot be restored into `graph`, as sentences.

    graph: normalized. Records in flight are already partitioned for their target subtasks, so every channel must exist
    again, between the same two subtasks. A snapshot without channel state always fits.
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
    if not wanted:
        return ()
    now = {vertex.id: vertex.parallelism for vertex in graph.vertices}
    changed = [
        vertex for vertex in metadata.vertices if now.get(vertex.vertex_id, vertex.parallelism) != vertex.parallelism
    ]
    if changed:
        return (_sentence(f"{_widths(changed)} in the snapshot"),)
    there = {(edge.source, edge.target): edge for edge in graph.edges}
    keys = {(input_.source, shape.vertex_id): input_.keys for shape in metadata.vertices for input_ in shape.inputs}
    for source, target in sorted(wanted):
        ends = (source[0], target[0])
        edge = there.get(ends)
        if edge is None or (spread_of(edge) is Partitioning.FORWARD and source[1] != target[1]):
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
    return ()


def back_edge(graph: JobGraph, source: str, target: str) -> Edge | None:
    """The FEEDBACK edge between two vertices."""
    found = (edge for edge in graph.edges if is_feedback(edge) and (edge.source, edge.target) == (source, target))
    return next(found, None)


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


def _widths(shapes: list[VertexShape]) -> str:
    return ", ".join(f"vertex '{shape.vertex_id}' has parallelism {shape.parallelism}" for shape in shapes)


def _sentence(reason: str) -> str:
    return (
        f"The snapshot is unaligned and holds records in flight, which only fit the same channels: {reason}. "
        f"Start from a savepoint, which never contains any, or leave the job as it was."
    )
