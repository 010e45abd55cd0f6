"""Whether a snapshot fits a job graph."""

from __future__ import annotations

from collections.abc import Mapping

from lockgate_proto.messages import CheckpointMetadata, JobGraph, SubtaskState, VertexShape

from coordinator.checkpoint.coordinator import FORMAT_VERSION
from coordinator.graph.shape import subtasks, vertex_shapes


def misfits(graph: JobGraph, metadata: CheckpointMetadata) -> tuple[str, ...]:
    """Every reason why `metadata` cannot be restored into `graph`, as sentences; empty when it can.

    graph: normalized. Vertices and operators are matched by id; the parallelism has to be the same.
    """
    if metadata.format_version != FORMAT_VERSION:
        return (
            f"The snapshot has format version {metadata.format_version}, this release reads version {FORMAT_VERSION}.",
        )
    now = {shape.vertex_id: shape for shape in vertex_shapes(graph)}
    then = {shape.vertex_id: shape for shape in metadata.vertices}
    problems = [f"The snapshot has a vertex '{name}', the job has not." for name in then if name not in now]
    problems += [f"The job has a vertex '{name}', the snapshot has not." for name in now if name not in then]
    for name in now:
        if name in then:
            problems += _vertex_misfits(now[name], then[name])
    if not problems:
        there = states_by_subtask(metadata)
        problems = [
            f"The snapshot lacks the state of {key[0]}-{key[1]}." for key in subtasks(graph) if key not in there
        ]
    return tuple(problems)


def states_by_subtask(metadata: CheckpointMetadata | None) -> Mapping[tuple[str, int], SubtaskState]:
    """(vertex id, subtask index) to its state; empty for no snapshot."""
    return {(state.vertex_id, state.subtask): state for state in metadata.subtasks} if metadata is not None else {}


def _vertex_misfits(now: VertexShape, then: VertexShape) -> list[str]:
    problems = []
    name = now.vertex_id
    if now.parallelism != then.parallelism:
        problems.append(
            f"Vertex '{name}' has parallelism {now.parallelism}, the snapshot was taken with {then.parallelism}: "
            f"submit it with {then.parallelism}."
        )
    if now.max_parallelism != then.max_parallelism:
        problems.append(
            f"Vertex '{name}' has max_parallelism {now.max_parallelism}, the snapshot has {then.max_parallelism}."
        )
    gone = [one for one in then.operator_ids if one not in now.operator_ids]
    new = [one for one in now.operator_ids if one not in then.operator_ids]
    if gone:
        problems.append(f"The snapshot has state for operators that vertex '{name}' lacks: {', '.join(gone)}.")
    if new:
        problems.append(f"Vertex '{name}' has operators that the snapshot does not know: {', '.join(new)}.")
    return problems
