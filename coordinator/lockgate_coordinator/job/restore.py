"""The snapshot from which a new leader continues, and whether it fits the job graph. Distribution: redistribute.py."""

from __future__ import annotations

from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import (
    CheckpointMetadata,
    JobGraph,
    JobRecord,
    ObjectState,
    Operator,
    OperatorState,
    RecordFunction,
    SinkState,
    StateKind,
    Vertex,
)
from lockgate_proto.operators import is_sink, is_source, object_state_of
from lockgate_proto.release import own_version

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.content import FORMAT_VERSION, OLDEST_FORMAT, CheckpointSetting
from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.job.events import Recovered, RecoveryFailed
from lockgate_coordinator.job.in_flight import in_flight_misfits
from lockgate_coordinator.job.redistribute import (
    DIVISIBLE,
    KEYED,
    Origin,
    SourceStateUnreadable,
    origins,
    source_state,
)

_WORDS = {
    StateKind.SOURCE_STATE: "offsets of a source",
    StateKind.KEYED_STATE: "keyed state",
    StateKind.ROCKSDB_STATE: "keyed state in RocksDB",
    StateKind.SINK_STATE: "uncommitted output of a sink",
    StateKind.OBJECT_STATE: "state of a function's object",
}
_SPREADABLE = frozenset(_WORDS)


def taken_over(setting: CheckpointSetting, event: Recovered | RecoveryFailed) -> CheckpointCoordinator:
    """The job's checkpoints as a new leader finds them."""
    metadata = event.metadata if isinstance(event, Recovered) else None
    completed = CompletedCheckpoints(setting.options.retained, event.completed, metadata)
    known = (metadata, *event.completed)
    used = [event.next_checkpoint_id - 1, *(snapshot.checkpoint_id for snapshot in known if snapshot is not None)]
    return CheckpointCoordinator(setting, completed, max(used) + 1)


def continues_from(found: CheckpointMetadata | None) -> tuple[str, int]:
    """What a new leader begins with, in words, and the id of that snapshot, 0 for none."""
    restored_id = found.checkpoint_id if found is not None else 0
    return f"continues from checkpoint {restored_id}" if restored_id else "starts from the beginning", restored_id


def recovery_problem(record: JobRecord, graph: JobGraph, completed: CompletedCheckpoints) -> str:
    """Why the job cannot continue, as sentences; "" when it can. A job with a snapshot never starts empty."""
    metadata, newest = completed.restore_point, completed.newest
    if metadata is None:
        wanted = newest.pointer if newest is not None else record.restore_from
        return f"The snapshot {wanted} was not read, and the job is not started empty." if wanted else ""
    if newest is not None and metadata.checkpoint_id != newest.checkpoint_id:
        return f"Snapshot {metadata.checkpoint_id} was read, but the newest completed is {newest.checkpoint_id}."
    problems = misfits(graph, metadata, allow_unmatched=record.allow_unmatched_state)
    return "\n".join(("The snapshot does not fit the job.", *problems)) if problems else ""


def misfits(graph: JobGraph, metadata: CheckpointMetadata, *, allow_unmatched: bool = False) -> tuple[str, ...]:
    """Every reason why `metadata` cannot be restored into `graph`, as sentences; empty when it can.

    graph: normalized. State is matched by operator id, wherever the operator is now; operators without state in the
    snapshot start empty. allow_unmatched: state that matches no operator is left behind.
    """
    if not OLDEST_FORMAT <= metadata.format_version <= FORMAT_VERSION:
        return (
            f"The snapshot has format {metadata.format_version}, and Lockgate {own_version()} reads {OLDEST_FORMAT} to "
            f"{FORMAT_VERSION}: use the version that has written it.",
        )
    problems = _gaps(metadata)
    now = {operator.id: (operator, vertex) for vertex in graph.vertices for operator in vertex.operators}
    for name, origin in origins(metadata).items():
        if name in now:
            problems += _operator_misfits(*now[name], origin)
        elif not allow_unmatched and _holds_something(origin):
            problems.append(_unmatched(name, origin))
    problems += in_flight_misfits(graph, metadata)
    return tuple(problems)


def _gaps(metadata: CheckpointMetadata) -> list[str]:
    there = {(state.vertex_id, state.subtask) for state in metadata.subtasks}
    wanted = [(shape.vertex_id, index) for shape in metadata.vertices for index in range(shape.parallelism)]
    return [f"The snapshot lacks the state of {key[0]}-{key[1]}." for key in wanted if key not in there]


def _operator_misfits(operator: Operator, vertex: Vertex, origin: Origin) -> list[str]:
    """Why an operator cannot restore the state that has its id."""
    problems: list[str] = []
    for kind in sorted(origin.kinds):
        is_function = isinstance(operator.kind, RecordFunction)
        expected = {
            StateKind.SOURCE_STATE: is_source(operator),
            StateKind.SINK_STATE: is_sink(operator),
            StateKind.OBJECT_STATE: is_function,
        }
        if not expected.get(kind, not is_source(operator) and not is_sink(operator)):
            problems.append(
                f"The snapshot's state of operator '{operator.id}' is {_named(kind)}, but '{operator.id}' is another "
                "kind of operator now: give it another id."
            )
        elif kind is StateKind.OBJECT_STATE:
            problems += _object_misfits(operator, vertex, origin)
        elif kind not in _SPREADABLE and origin.parallelism != vertex.parallelism:
            problems.append(
                f"The state of operator '{operator.id}' ({_named(kind)}) was taken with parallelism "
                f"{origin.parallelism} and cannot be spread over {vertex.parallelism}: submit it with "
                f"{origin.parallelism}."
            )
        elif kind in KEYED and origin.max_parallelism != vertex.max_parallelism:
            problems.append(
                f"Vertex '{vertex.id}' has max_parallelism {vertex.max_parallelism}, the snapshot of operator "
                f"'{operator.id}' has {origin.max_parallelism}, and that cannot change."
            )
    return problems or _unreadable(origin)


def _object_misfits(operator: Operator, vertex: Vertex, origin: Origin) -> list[str]:
    state = object_state_of(operator)
    if state is ObjectState.OBJECT_STATE_UNSPECIFIED:
        return [
            f"The snapshot has state of the object of operator '{operator.id}', and its object has none now: give it "
            "the methods snapshot_state() and restore_state(state), or give the operator another id."
        ]
    if state not in DIVISIBLE and origin.parallelism != vertex.parallelism:
        return [
            f"The state of the object of operator '{operator.id}' was taken with parallelism {origin.parallelism} and "
            f"cannot be divided among {vertex.parallelism}: keep {origin.parallelism}, or let snapshot_state() return "
            'a list and give the object the attribute on_rescale = "split" or "union".'
        ]
    return []


def _unreadable(origin: Origin) -> list[str]:
    try:
        for then, states in origin.states.items():
            for state in states:
                if state.kind is StateKind.SOURCE_STATE:
                    source_state(state, f"{origin.vertex_id}-{then}")
    except SourceStateUnreadable as error:
        return [str(error)]
    return []


def _unmatched(name: str, origin: Origin) -> str:
    kinds = ", ".join(_named(kind) for kind in sorted(origin.kinds))
    return (
        f"The snapshot has state of operator '{name}' ({kinds}), and the job has no operator with that id: give the id "
        f"to the operator that replaces it, with .uid('{name}') in Python, or allow state to be left behind "
        "(--allow-unmatched-state)."
    )


def _named(kind: StateKind) -> str:
    return _WORDS.get(kind, kind.name)


def _holds_something(origin: Origin) -> bool:
    """False for a sink without pending output, which has no state that could be lost."""
    return any(not _is_empty(state) for states in origin.states.values() for state in states)


def _is_empty(state: OperatorState) -> bool:
    if state.kind is not StateKind.SINK_STATE or state.handle is None or state.handle.path:
        return False
    try:
        return not decode(SinkState, state.handle.inline).pending
    except MalformedMessage:
        return False
