"""Who gets which part of a snapshot: its states by operator id, spread over the subtasks that the graph has now.

    same number of subtasks   every subtask gets what the one of its number had
    another number            keyed state: whoever had some of the key groups that a subtask has now; no increment is
                              built on it
                              source: all splits anew, the largest to the subtask with the least to read
                              loop: the log of old subtask i of its head goes to subtask i modulo the new number
                              sink: the pending transactions of old subtask i go to subtask i modulo the new number

Pending transactions of one old subtask stay together, because they are committed in order; each keeps the number of the
subtask that staged it, by which a commit that comes twice is known. See restore.py for what must hold before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockgate_common.checksums import crc32
from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import (
    ChannelState,
    CheckpointMetadata,
    JobGraph,
    OperatorCounters,
    OperatorState,
    Partitioning,
    SourceState,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskState,
    Vertex,
)
from lockgate_proto.splits import UNBOUNDED

from lockgate_coordinator.job.counters import summed
from lockgate_coordinator.job.in_flight import back_edge

SubtaskKey = tuple[str, int]
KEYED = frozenset({StateKind.KEYED_STATE, StateKind.ROCKSDB_STATE})
"""Kinds of state that lie by key group."""


class SourceStateUnreadable(Exception):
    """A snapshot holds a source state that cannot be decoded; str() is a sentence."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a snapshot has an operator: its vertex then, that one's shape, and the operator's states by subtask."""

    vertex_id: str
    parallelism: int
    max_parallelism: int
    states: dict[int, list[OperatorState]] = field(default_factory=dict)

    @property
    def kinds(self) -> frozenset[StateKind]:
        """Of all its states."""
        return frozenset(state.kind for states in self.states.values() for state in states)


def origins(metadata: CheckpointMetadata) -> Mapping[str, Origin]:
    """Operator id to where the snapshot has its state; operators without any are left out."""
    shapes = {shape.vertex_id: shape for shape in metadata.vertices}
    found: dict[str, Origin] = {}
    for subtask in metadata.subtasks:
        shape = shapes.get(subtask.vertex_id)
        for state in subtask.operators if shape is not None else ():
            assert shape is not None
            origin = Origin(shape.vertex_id, shape.parallelism, shape.max_parallelism)
            found.setdefault(state.operator_id, origin).states.setdefault(subtask.subtask, []).append(state)
    return found


def redistribute(graph: JobGraph, metadata: CheckpointMetadata | None) -> Mapping[SubtaskKey, SubtaskState]:
    """(vertex id, subtask) to what it restores, for every subtask of `graph`; empty for no snapshot.

    graph: normalized, and fits the snapshot. Raises SourceStateUnreadable.
    """
    if metadata is None:
        return {}
    found, restored = origins(metadata), counted(graph, metadata)
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.id in found:
                for index, states in enumerate(_spread(found[operator.id], vertex)):
                    before = restored[vertex.id, index]
                    restored[vertex.id, index] = replace(before, operators=(*before.operators, *states))
    for subtask in metadata.subtasks:
        for channel in subtask.channels:
            key, moved = _heir_of_channel(graph, subtask, channel)
            restored[key] = replace(restored[key], channels=(*restored[key].channels, moved))
    return restored


def _heir_of_channel(graph: JobGraph, then: SubtaskState, channel: ChannelState) -> tuple[SubtaskKey, ChannelState]:
    """Nobody but the same subtask can take up what was in flight, but for the log of a back edge.

    The head of a loop holds no keyed state, so any of its subtasks may go on with what circled, over any back edge.
    """
    if not channel.feedback:
        return (then.vertex_id, then.subtask), channel
    widths = {vertex.id: vertex.parallelism for vertex in graph.vertices}
    index = then.subtask % widths[then.vertex_id]
    edge = back_edge(graph, channel.vertex_id, then.vertex_id)
    is_forward = edge is not None and spread_of(edge) is Partitioning.FORWARD
    sender = index if is_forward else channel.subtask % widths[channel.vertex_id]
    return (then.vertex_id, index), replace(channel, subtask=sender)


def counted(graph: JobGraph, metadata: CheckpointMetadata | None) -> dict[SubtaskKey, SubtaskState]:
    """The same with nothing but counters: their sums stay, whoever holds them. Empty for no snapshot."""
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
    """Largest rest first, each to the subtask with the least to read, and of several to that with the fewest splits.

    load, count: what each subtask has so far, and how many splits; both are raised.
    """
    shares: dict[int, list[SplitState]] = {index: [] for index in load}
    count = dict.fromkeys(load, 0) if count is None else count
    for split in sorted(splits, key=lambda split: (-rest(split), split.split)):
        index = min(shares, key=lambda share: (load[share], count[share], share))
        shares[index].append(split)
        load[index] += rest(split)
        count[index] += 1
    return shares


def rest(split: SplitState) -> int:
    """What is left to be read, in the split's own unit; 0 where nobody knows."""
    return max(0, split.end - split.offset) if split.end != UNBOUNDED else 0


def source_state(state: OperatorState, name: str) -> SourceState:
    """Decoded. name: of the subtask, for the message. Raises SourceStateUnreadable."""
    if state.handle is None or state.handle.path:
        raise SourceStateUnreadable(f"The snapshot's source state of {name} is not inside the snapshot's metadata.")
    try:
        return decode(SourceState, state.handle.inline)
    except MalformedMessage as error:
        raise SourceStateUnreadable(f"The snapshot's source state of {name} is corrupt: {error}") from error


def _spread(origin: Origin, vertex: Vertex) -> list[list[OperatorState]]:
    """An operator's states for each subtask of the vertex that has it now."""
    now = range(vertex.parallelism)
    if origin.parallelism == vertex.parallelism:
        return [origin.states.get(index, []) for index in now]
    shares: list[list[OperatorState]] = [[] for _ in now]
    sources: list[tuple[str, OperatorState]] = []
    for then, states in sorted(origin.states.items()):
        for state in states:
            if state.kind is StateKind.SOURCE_STATE:
                sources.append((f"{origin.vertex_id}-{then}", state))
            elif state.kind in KEYED:
                for index in _heirs(then, origin, vertex):
                    shares[index].append(_not_to_build_on(state))
            else:
                shares[then % vertex.parallelism].append(state)
    for index, state in _source_shares(sources, vertex.parallelism):
        shares[index].append(state)
    return shares


def _not_to_build_on(state: OperatorState) -> OperatorState:
    """The same for a subtask of another number: checkpoints know their pieces by it, so its first snapshot is full.

    Tables of a database lie in files of their own, which any subtask may refer to.
    """
    handle = None if state.handle is None else replace(state.handle, checkpoint_id=0)
    return replace(
        state, handle=handle, increments=tuple(replace(increment, checkpoint_id=0) for increment in state.increments)
    )


def _heirs(then: int, origin: Origin, vertex: Vertex) -> list[int]:
    """The subtasks of today that own a key group which subtask `then` owned."""
    old = key_group_range(then, origin.parallelism, origin.max_parallelism)
    ranges = [key_group_range(index, vertex.parallelism, vertex.max_parallelism) for index in range(vertex.parallelism)]
    return [index for index, range_ in enumerate(ranges) if max(range_.start, old.start) < min(range_.stop, old.stop)]


def _source_shares(then: Sequence[tuple[str, OperatorState]], parallelism: int) -> list[tuple[int, OperatorState]]:
    """All splits anew. Only when no subtask waited for more is the list of splits complete.

    Files of splits at rest cannot be taken apart here: each stays whole, together with what is newer of its splits.
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


def _packed(operator_id: str, state: SourceState, files: tuple[StateHandle, ...]) -> OperatorState:
    data = encode(state)
    handle = StateHandle(inline=data, size_bytes=len(data), checksum=crc32(data))
    return OperatorState(operator_id=operator_id, kind=StateKind.SOURCE_STATE, handle=handle, files=files)


def _counters(
    vertex: Vertex, index: int, before: Mapping[str, Sequence[tuple[int, OperatorCounters]]]
) -> tuple[OperatorCounters, ...]:
    """Those of the old subtasks that this one stands in for."""
    here = [operator.id for operator in vertex.operators if operator.id in before]
    mine = {name: [item for then, item in before[name] if then % vertex.parallelism == index] for name in here}
    return tuple(summed(name, parts) for name, parts in mine.items())
