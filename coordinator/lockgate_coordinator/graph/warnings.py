"""Warnings about jobs that run as requested but guarantee less than their author may expect."""

from __future__ import annotations

from lockgate_common.amounts import listed
from lockgate_common.masking import masked
from lockgate_proto.components import components
from lockgate_proto.loops import before, loops, spread_of
from lockgate_proto.messages import (
    CheckpointMode,
    ForeachBatchSink,
    JobGraph,
    KafkaSink,
    KafkaWriteMode,
    KeyedProcess,
    MemoryBackend,
    Operator,
    Partitioning,
    SocketSource,
    SqlTransform,
    TaskManagerFailover,
)
from lockgate_proto.operators import kind_of
from lockgate_proto.parts import whole_because

from lockgate_coordinator.graph.batchwise import spans_rows
from lockgate_coordinator.graph.changelog import added_up
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.regions import connection
from lockgate_coordinator.graph.shape import slots_needed


def warnings(graph: JobGraph) -> tuple[str, ...]:
    """Sentences for the submitter of `graph`, as submitted or normalized; empty when there is nothing to warn of."""
    graph = normalize(graph)
    return (
        *_lost_records(graph),
        *_repeated_records(graph),
        *_skipped_records(graph),
        *_shared_ids(graph),
        *_late_timers(graph),
        *_nothing_to_copy(graph),
        *_nothing_to_compare(graph),
        *_no_part(graph),
        *_added_twice(graph),
        *_of_a_batch(graph),
        *_written_secrets(graph),
    )


def _lost_records(graph: JobGraph) -> tuple[str, ...]:
    sockets = [operator.id for operator in _operators(graph) if isinstance(operator.kind, SocketSource)]
    if not sockets:
        return ()
    verb = "reads from a socket" if len(sockets) == 1 else "read from sockets"
    return (
        f"{_list(sockets)} {verb}, which cannot be read again: after a failure the lines since the last checkpoint are "
        f"lost permanently, and at a stop or rescale those since its snapshot. Each line counts at most once; if that "
        f"is not enough, read from files instead.",
    )


def _repeated_records(graph: JobGraph) -> tuple[str, ...]:
    assert graph.checkpoints is not None
    if graph.checkpoints.mode is not CheckpointMode.AT_LEAST_ONCE or not _has_several_channels(graph):
        return ()
    sinks = [operator.id for operator in _operators(graph) if _is_exact(operator)]
    if not sinks:
        return ()
    return (
        f"Checkpoints are at least once: after a failure, a rescale or a start from a savepoint {_list(sinks)} may "
        "permanently show duplicate records and totals that are too high. Without checkpoint_mode='at_least_once' "
        "each record counts once.",
    )


def _skipped_records(graph: JobGraph) -> tuple[str, ...]:
    assert graph.checkpoints is not None
    if graph.checkpoints.mode is not CheckpointMode.AT_MOST_ONCE:
        return ()
    return (
        "Checkpoints are at most once: a failure loses the records that were read ahead at the last checkpoint, which "
        "`lockgate job` counts, and a record waits for the next checkpoint before it is processed. Without "
        "checkpoint_mode='at_most_once' each record counts once.",
    )


def _nothing_to_copy(graph: JobGraph) -> tuple[str, ...]:
    if not graph.standby_replicas or not isinstance(graph.state_backend and graph.state_backend.backend, MemoryBackend):
        return ()
    return (
        "standby_replicas has no effect with state='memory', whose snapshots have no files to copy: the leader sends "
        "the state with each restart. Leave it out, or use another state backend.",
    )


def _is_exact(operator: Operator) -> bool:
    """True for an exactly-once sink whose author has not asked for less."""
    kind, sink = kind_of(operator), operator.kind
    is_loose = isinstance(sink, KafkaSink) and sink.mode is KafkaWriteMode.KAFKA_AT_LEAST_ONCE
    return kind is not None and kind.is_exact and not is_loose


def _shared_ids(graph: JobGraph) -> tuple[str, ...]:
    """Functions that deduplicate by checkpoint id would drop the rows of all subtasks but one."""
    return tuple(
        f"'{operator.id}' calls its function in each of {vertex.parallelism} subtasks: the same checkpoint id comes "
        f"{vertex.parallelism} times, each time with other rows, so the id alone does not show which rows came before. "
        f"With parallelism 1, the default of foreach_batch(), an id comes with all its rows."
        for vertex in graph.vertices
        for operator in vertex.operators
        if isinstance(operator.kind, ForeachBatchSink) and vertex.parallelism > 1
    )


def _late_timers(graph: JobGraph) -> tuple[str, ...]:
    """Process functions behind loops. Only the function knows its timers, so this is a warning and not an error."""
    found = loops(graph)
    return tuple(
        f"Event time timers of '{operator.id}' never fire before the end of its input: it is behind the loop of "
        f"{', '.join(sorted(loop))}, through which no watermark passes. Processing time timers fire as usual; for "
        f"event time timers put it in front of the loop."
        for vertex in graph.vertices
        for loop in [loop for loop in found if vertex.id not in loop and loop & before(graph.edges, vertex.id)][:1]
        for operator in vertex.operators
        if isinstance(operator.kind, KeyedProcess)
    )


def _nothing_to_compare(graph: JobGraph) -> tuple[str, ...]:
    assert graph.state_backend is not None
    if not graph.state_backend.binary_diff or any(
        isinstance(operator.kind, KeyedProcess) for operator in _operators(graph)
    ):
        return ()
    return (
        "The state backend's binary_diff has no effect: only state of process functions is stored as differences, "
        "and the job has none.",
    )


def _no_part(graph: JobGraph) -> tuple[str, ...]:
    if graph.task_manager_failover is not TaskManagerFailover.TASK_MANAGER_FAILOVER_PART:
        return ()
    whys = [(component, whole_because(component)) for component in components(graph) if connection(component)]
    return tuple(
        f"The loss of a task manager restarts {_whole(graph, component)} in spite of "
        f"task_manager_failover='part': {why}."
        for component, why in whys
        if why
    )


def _whole(graph: JobGraph, component: JobGraph) -> str:
    if slots_needed(component) == slots_needed(graph):
        return "the whole job"
    return f"all of {listed([vertex.id for vertex in component.vertices])}, and what shares slots with it,"


def _added_twice(graph: JobGraph) -> tuple[str, ...]:
    return tuple(
        f"'{adding}' aggregates the output of '{source}', which emits the new value of a key at each change: values "
        f"that later ones replace are added as well, so the totals are too high. Aggregate the records themselves by "
        f"the keys of '{adding}', or give '{source}' a window without allowed lateness, and with a trigger only if "
        f"it purges."
        for adding, source in added_up(graph)
    )


def _of_a_batch(graph: JobGraph) -> tuple[str, ...]:
    found = [
        (operator.id, spans_rows(operator.kind.query))
        for operator in _operators(graph)
        if isinstance(operator.kind, SqlTransform)
    ]
    return tuple(
        f"'{operator}' has {what} in its SQL, which sees one micro-batch at a time, of any size, and never the whole "
        f"stream. For totals use key_by(...).aggregate(...), for windows window(...), for distinct rows deduplicate()."
        for operator, what in found
        if what
    )


def _has_several_channels(graph: JobGraph) -> bool:
    """True when some subtask has more than one input channel; otherwise there is nothing to align."""
    widths = {vertex.id: vertex.parallelism for vertex in graph.vertices}
    channels: dict[str, dict[str, int]] = {}  # by target and source
    for edge in graph.edges:
        width = 1 if spread_of(edge) is Partitioning.FORWARD else widths.get(edge.source, 0)
        found = channels.setdefault(edge.target, {})
        found[edge.source] = max(width, found.get(edge.source, 0))
    return any(sum(found.values()) > 1 for found in channels.values())


def _written_secrets(graph: JobGraph) -> tuple[str, ...]:
    holders = [
        operator.id
        for operator in _operators(graph)
        if any(masked(text) != text for text in _connection_settings(operator))
    ]
    if not holders:
        return ()
    return (
        f"{_list(holders)} {'holds' if len(holders) == 1 else 'hold'} a password or key, which is stored with the job "
        f"graph: write ${{NAME}} for it and set NAME in the environment of the task managers, or use their own "
        f"configuration (~/.pgpass, AWS_SECRET_ACCESS_KEY).",
    )


def _connection_settings(operator: Operator) -> list[str]:
    """Where to connect, and with which options."""
    kind = operator.kind
    options = getattr(kind, "options", None) or {}
    places = [str(getattr(kind, name, "")) for name in ("url", "uri", "path", "servers")]
    return [*places, *(f"{name}={value}" for name, value in options.items())]


def _operators(graph: JobGraph) -> list[Operator]:
    return [operator for vertex in graph.vertices for operator in vertex.operators]


def _list(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
