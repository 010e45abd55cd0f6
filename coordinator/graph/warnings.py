"""What runs as asked for but promises less than its author may think."""

from __future__ import annotations

from lockgate_proto.loops import before, loops, spread_of
from lockgate_proto.messages import (
    CheckpointMode,
    DeltaSink,
    FileSink,
    ForeachBatchSink,
    JobGraph,
    KafkaSink,
    KafkaWriteMode,
    KeyedProcess,
    Operator,
    Partitioning,
    PythonSink,
    SocketSource,
    SqlSink,
)

from coordinator.graph.normalize import normalize

EXACT_SINKS = (FileSink, SqlSink, PythonSink, KafkaSink, DeltaSink)
"""Sinks that show each record's effect once, as long as the state behind them is exact."""


def warnings(graph: JobGraph) -> tuple[str, ...]:
    """Sentences for whoever submits `graph`, as submitted or normalized; empty when it keeps every promise."""
    graph = normalize(graph)
    return (
        *_lost_records(graph),
        *_repeated_records(graph),
        *_shared_ids(graph),
        *_late_timers(graph),
        *_nothing_to_compare(graph),
    )


def _lost_records(graph: JobGraph) -> tuple[str, ...]:
    sockets = [one.id for one in _operators(graph) if isinstance(one.kind, SocketSource)]
    if not sockets:
        return ()
    verb = "reads from a socket" if len(sockets) == 1 else "read from sockets"
    return (
        f"{_list(sockets)} {verb}, which cannot be read again: after a failure the lines since the last checkpoint are "
        f"lost, for good, and at a stop or rescale those since its snapshot. Each line counts at most once; where that "
        f"is not enough, read from files instead.",
    )


def _repeated_records(graph: JobGraph) -> tuple[str, ...]:
    assert graph.checkpoints is not None
    if graph.checkpoints.mode is not CheckpointMode.AT_LEAST_ONCE or not _has_several_channels(graph):
        return ()
    sinks = [one.id for one in _operators(graph) if isinstance(one.kind, EXACT_SINKS) and not _is_loose(one.kind)]
    if not sinks:
        return ()
    return (
        f"Checkpoints are at least once: after a failure, a rescale or a start from a savepoint {_list(sinks)} may "
        f"show records twice and totals that are too high, for good. Without checkpoint_mode='at_least_once' each "
        f"record counts once.",
    )


def _is_loose(kind: object) -> bool:
    """True for a sink whose author has asked for less."""
    return isinstance(kind, KafkaSink) and kind.mode is KafkaWriteMode.KAFKA_AT_LEAST_ONCE


def _shared_ids(graph: JobGraph) -> tuple[str, ...]:
    """A function that takes an id that it has seen for done drops the rows of all subtasks but one."""
    return tuple(
        f"'{operator.id}' calls its function in each of {vertex.parallelism} subtasks: the same checkpoint id comes "
        f"{vertex.parallelism} times, each time with other rows, so the id alone does not tell what was done before. "
        f"With parallelism 1, which foreach_batch() has unless told otherwise, an id comes with all its rows."
        for vertex in graph.vertices
        for operator in vertex.operators
        if isinstance(operator.kind, ForeachBatchSink) and vertex.parallelism > 1
    )


def _late_timers(graph: JobGraph) -> tuple[str, ...]:
    """Only the function itself knows which timers it sets; what is seen to need event time is refused there."""
    found = loops(graph)
    return tuple(
        f"Event time timers of '{operator.id}' never fire before the end of its input: it stands behind the loop of "
        f"{', '.join(sorted(loop))}, through which no watermark comes. Timers by the wall clock fire as everywhere; "
        f"for others put it in front of the loop."
        for vertex in graph.vertices
        for loop in [one for one in found if vertex.id not in one and one & before(graph.edges, vertex.id)][:1]
        for operator in vertex.operators
        if isinstance(operator.kind, KeyedProcess)
    )


def _nothing_to_compare(graph: JobGraph) -> tuple[str, ...]:
    assert graph.state_backend is not None
    if not graph.state_backend.binary_diff or any(isinstance(one.kind, KeyedProcess) for one in _operators(graph)):
        return ()
    return (
        "The state backend's binary_diff changes nothing: only what process functions keep is stored as differences, "
        "and the job has none.",
    )


def _has_several_channels(graph: JobGraph) -> bool:
    """True when some subtask has more than one input channel: else there is nothing to hold back."""
    widths = {vertex.id: vertex.parallelism for vertex in graph.vertices}
    channels: dict[str, dict[str, int]] = {}  # by target and source
    for edge in graph.edges:
        width = 1 if spread_of(edge) is Partitioning.FORWARD else widths.get(edge.source, 0)
        found = channels.setdefault(edge.target, {})
        found[edge.source] = max(width, found.get(edge.source, 0))
    return any(sum(found.values()) > 1 for found in channels.values())


def _operators(graph: JobGraph) -> list[Operator]:
    return [operator for vertex in graph.vertices for operator in vertex.operators]


def _list(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
