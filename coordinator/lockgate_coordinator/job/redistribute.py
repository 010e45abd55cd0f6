"""Distributes a snapshot over the subtasks of the present graph, by operator id.

    same number of subtasks   subtask i gets the state of old subtask i
    another number            keyed state: of every old subtask that had one of the new subtask's key groups; no
                              increment builds on it
                              source: all splits are assigned again, the largest to the subtask with the least to read
                              object: the states of all old subtasks go to each new one, which takes its share; also
                              with the same number if each is to have the state of all; broadcast state is the same
                              everywhere, and subtask i gets that of old subtask i modulo the old number
                              records in flight: see restored_channels.py
                              sink: the pending transactions of old subtask i go to subtask i modulo the new number

A snapshot of another run says what that run read, and not where this one ends: its lists of splits are not complete, so
sources look for splits again, and splits get the ends that they have now, see SourceState.reopened.

Pending transactions of one old subtask stay together, because they are committed in order; each keeps the number of the
subtask that staged it, by which a repeated commit is recognised. For the preconditions see restore.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockgate_common.checksums import crc32
from lockgate_proto.broadcasts import has_broadcast_state
from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.messages import (
    CheckpointMetadata,
    GeneratorSource,
    JobGraph,
    ObjectState,
    Operator,
    OperatorCounters,
    OperatorState,
    SourceState,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskState,
    Vertex,
)
from lockgate_proto.operators import object_state_of
from lockgate_proto.splits import UNBOUNDED

from lockgate_coordinator.job.counters import summed
from lockgate_coordinator.job.restored_channels import owners, restored_channels

SubtaskKey = tuple[str, int]
KEYED = frozenset({StateKind.KEYED_STATE, StateKind.ROCKSDB_STATE})
"""Kinds of state that are stored by key group."""

DIVISIBLE = frozenset(
    {ObjectState.OBJECT_STATE_SPLIT, ObjectState.OBJECT_STATE_UNION, ObjectState.OBJECT_STATE_BROADCAST}
)
"""State of an object that fits another number of subtasks."""


class SourceStateUnreadable(Exception):
    """The source state in a snapshot cannot be decoded; str() is a sentence."""


@dataclass(frozen=True, slots=True)
class Origin:
    """An operator in a snapshot: its vertex, the shape of that, and the operator's states by subtask."""

    vertex_id: str
    parallelism: int
    max_parallelism: int
    states: dict[int, list[OperatorState]] = field(default_factory=dict)

    @property
    def kinds(self) -> frozenset[StateKind]:
        """Of all its states."""
        return frozenset(state.kind for states in self.states.values() for state in states)


def origins(metadata: CheckpointMetadata) -> Mapping[str, Origin]:
    """The origin of each operator's state, by operator id; operators without state are left out."""
    shapes = {shape.vertex_id: shape for shape in metadata.vertices}
    found: dict[str, Origin] = {}
    for subtask in metadata.subtasks:
        shape = shapes.get(subtask.vertex_id)
        for state in subtask.operators if shape is not None else ():
            assert shape is not None
            origin = Origin(shape.vertex_id, shape.parallelism, shape.max_parallelism)
            found.setdefault(state.operator_id, origin).states.setdefault(subtask.subtask, []).append(state)
    return found


def redistribute(
    graph: JobGraph, metadata: CheckpointMetadata | None, reopens: bool = False
) -> Mapping[SubtaskKey, SubtaskState]:
    """The state that each subtask of `graph` restores, by (vertex id, subtask); empty for no snapshot.

    graph: normalized, and fits the snapshot. reopens: the snapshot is of another run. Raises SourceStateUnreadable.
    """
    if metadata is None:
        return {}
    found, restored = origins(metadata), counted(graph, metadata)
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.id in found:
                for index, states in enumerate(_spread(found[operator.id], vertex, operator)):
                    if reopens:
                        states = [_reopened(state, operator, f"{vertex.id}-{index}") for state in states]
                    before = restored[vertex.id, index]
                    restored[vertex.id, index] = replace(before, operators=(*before.operators, *states))
    for key, channels in restored_channels(graph, metadata).items():
        restored[key] = replace(restored[key], channels=tuple(channels))
    return restored


def counted(graph: JobGraph, metadata: CheckpointMetadata | None) -> dict[SubtaskKey, SubtaskState]:
    """The same with counters only, whose sums stay the same. Empty for no snapshot."""
    if metadata is None:
        return {}
    before: dict[str, list[tuple[int, OperatorCounters]]] = {}
    for subtask in metadata.subtasks:
        for counter in subtask.counters:
            before.setdefault(counter.operator_id, []).append((subtask.subtask, counter))
    return {
        (vertex.id, index): SubtaskState(vertex_id=vertex.id, subtask=index, counters=_counters(vertex, index, before))
        for vertex in graph.vertices
        for index in range(vertex.parallelism)
    }


def by_size(
    splits: Iterable[SplitState], load: dict[int, int], count: dict[int, int] | None = None
) -> dict[int, list[SplitState]]:
    """Assigns splits, largest first, each to the subtask with the least to read, then with the fewest splits.

    load, count: the present load and number of splits of each subtask; both are updated.
    """
    shares: dict[int, list[SplitState]] = {index: [] for index in load}
    count = dict.fromkeys(load, 0) if count is None else count
    for split in sorted(splits, key=lambda split: (-remaining(split), split.split)):
        index = min(shares, key=lambda share: (load[share], count[share], share))
        shares[index].append(split)
        load[index] += remaining(split)
        count[index] += 1
    return shares


def remaining(split: SplitState) -> int:
    """What is left to read, in the split's own unit; 0 if unknown."""
    return max(0, split.end - split.offset) if split.end != UNBOUNDED else 0


def source_state(state: OperatorState, name: str) -> SourceState:
    """The decoded source state. name: of the subtask, for the message. Raises SourceStateUnreadable."""
    if state.handle is None or state.handle.path:
        raise SourceStateUnreadable(f"The snapshot's source state of {name} is not inside the snapshot's metadata.")
    try:
        return decode(SourceState, state.handle.inline)
    except MalformedMessage as error:
        raise SourceStateUnreadable(f"The snapshot's source state of {name} is corrupt: {error}") from error


def _spread(origin: Origin, vertex: Vertex, operator: Operator) -> list[list[OperatorState]]:
    """An operator's states for each subtask of its present vertex."""
    now = range(vertex.parallelism)
    if origin.parallelism == vertex.parallelism and object_state_of(operator) is not ObjectState.OBJECT_STATE_UNION:
        return [origin.states.get(index, []) for index in now]
    shares: list[list[OperatorState]] = [[] for _ in now]
    sources: list[tuple[str, OperatorState]] = []
    for then, states in sorted(origin.states.items()):
        for state in states:
            if state.kind is StateKind.SOURCE_STATE:
                sources.append((f"{origin.vertex_id}-{then}", state))
            elif state.kind in KEYED:
                old = key_group_range(then, origin.parallelism, origin.max_parallelism)
                for index in owners(old, vertex):
                    shares[index].append(_not_to_build_on(state))
            elif state.kind is StateKind.OBJECT_STATE:
                for index, share in enumerate(shares):
                    if not has_broadcast_state(operator) or index % origin.parallelism == then:
                        share.append(state)
            else:
                shares[then % vertex.parallelism].append(state)
    for index, state in _source_shares(sources, vertex.parallelism):
        shares[index].append(state)
    return shares


def _not_to_build_on(state: OperatorState) -> OperatorState:
    """The state for a subtask with another number, without a base: its first snapshot will be full.

    Checkpoints identify inline pieces by subtask. The tables of a database are separate files, to which any subtask may
    refer.
    """
    handle = None if state.handle is None else replace(state.handle, checkpoint_id=0)
    return replace(
        state, handle=handle, increments=tuple(replace(increment, checkpoint_id=0) for increment in state.increments)
    )


def _source_shares(then: Sequence[tuple[str, OperatorState]], parallelism: int) -> list[tuple[int, OperatorState]]:
    """All splits, assigned again. The list of splits is complete only if no subtask waited for more.

    Files of idle splits cannot be split up here: each stays as it is, together with the newer states of its splits.
    """
    if not then:
        return []
    states = [source_state(state, name) for name, state in then]
    complete = all(state.complete for state in states)
    known = {split.split: split for state in states for split in state.splits if not split.rested}
    shares = by_size(known.values(), dict.fromkeys(range(parallelism), 0))
    files: list[tuple[StateHandle, ...]] = [() for _ in shares]
    for number, (state, (_, stored)) in enumerate(zip(states, then, strict=True)):
        heir = number % parallelism
        shares[heir] += [split for split in state.splits if split.rested]
        files[heir] += tuple(replace(file, checkpoint_id=0) for file in stored.files)
    operator_id = then[0][1].operator_id
    return [
        (index, _packed(operator_id, SourceState(tuple(share), complete), files[index]))
        for index, share in shares.items()
    ]


def _reopened(state: OperatorState, operator: Operator, name: str) -> OperatorState:
    """State of another run for this one. A generator keeps the partitions that it has."""
    if state.kind is not StateKind.SOURCE_STATE:
        return state
    known = source_state(state, name)
    complete = known.complete and isinstance(operator.kind, GeneratorSource)
    return _packed(state.operator_id, replace(known, complete=complete, reopened=True), state.files)


def _packed(operator_id: str, state: SourceState, files: tuple[StateHandle, ...]) -> OperatorState:
    data = encode(state)
    handle = StateHandle(inline=data, size_bytes=len(data), checksum=crc32(data))
    return OperatorState(operator_id=operator_id, kind=StateKind.SOURCE_STATE, handle=handle, files=files)


def _counters(
    vertex: Vertex, index: int, before: Mapping[str, Sequence[tuple[int, OperatorCounters]]]
) -> tuple[OperatorCounters, ...]:
    """The counters of the old subtasks that this one replaces."""
    here = [operator.id for operator in vertex.operators if operator.id in before]
    mine = {name: [item for then, item in before[name] if then % vertex.parallelism == index] for name in here}
    return tuple(summed(name, parts) for name, parts in mine.items())
