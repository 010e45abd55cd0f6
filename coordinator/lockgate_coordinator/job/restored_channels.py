"""Distributes a snapshot's records in flight over the channels of the present graph. What fits: in_flight.py.

    both ends as they were   the subtask that had them restores them, in the same channel
    by key                   each new subtask gets all channels that may have rows of its key groups, and filters them
    in turn                  each channel goes to one subtask
    log of a back edge       of subtask i of a head to subtask i modulo the new number, over any back edge

What the sender still had goes to its receiver as well, behind what the receiver had already: no new subtask corresponds
to the old sender, and the order of a key has to stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lockgate_proto.key_groups import key_group_range
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import (
    ChannelSide,
    ChannelState,
    CheckpointMetadata,
    JobGraph,
    Partitioning,
    SubtaskState,
    Vertex,
    VertexShape,
)

from lockgate_coordinator.job.in_flight import back_edge, moved_edges

SubtaskKey = tuple[str, int]


def restored_channels(graph: JobGraph, metadata: CheckpointMetadata) -> Mapping[SubtaskKey, list[ChannelState]]:
    """The channel states that each subtask of `graph` restores, in order, by (vertex id, subtask).

    graph: normalized, and fits the snapshot.
    """
    heirs = _Heirs(graph, metadata)
    found: defaultdict[SubtaskKey, list[ChannelState]] = defaultdict(list)
    for side in (ChannelSide.INPUT_CHANNEL, ChannelSide.OUTPUT_CHANNEL):
        for then in metadata.subtasks:
            for channel in then.channels:
                if channel.side is side:
                    for key, state in heirs.of(then, channel):
                        found[key].append(state)
    return found


def owners(old: range, vertex: Vertex) -> list[int]:
    """The present subtasks that own one of these key groups."""
    ranges = [key_group_range(index, vertex.parallelism, vertex.max_parallelism) for index in range(vertex.parallelism)]
    return [index for index, range_ in enumerate(ranges) if max(range_.start, old.start) < min(range_.stop, old.stop)]


class _Heirs:
    """Of the channels of one snapshot."""

    def __init__(self, graph: JobGraph, metadata: CheckpointMetadata) -> None:
        self._graph = graph
        self._moved = moved_edges(graph, metadata)
        self._shapes: dict[str, VertexShape] = {shape.vertex_id: shape for shape in metadata.vertices}
        self._now = {vertex.id: vertex for vertex in graph.vertices}
        self._hashed = {(edge.source, edge.target) for edge in graph.edges if spread_of(edge) is Partitioning.HASH}
        self._turn = 0

    def of(self, then: SubtaskState, channel: ChannelState) -> Iterator[tuple[SubtaskKey, ChannelState]]:
        """The subtasks that restore a channel state of old subtask `then`, and what each of them gets."""
        here, there = (then.vertex_id, then.subtask), (channel.vertex_id, channel.subtask)
        is_input = channel.side is ChannelSide.INPUT_CHANNEL
        source, target = (there, here) if is_input else (here, there)
        ends = (source[0], target[0])
        if not channel.feedback and ends not in self._moved:
            yield here, channel
        elif back_edge(self._graph, *ends) is not None:
            yield self._log(source, target, channel)
        else:
            sender = source[1] % self._now[source[0]].parallelism
            state = replace(channel, side=ChannelSide.INPUT_CHANNEL, vertex_id=source[0], subtask=sender, moved=True)
            for index in self._receivers(ends, target[1]):
                yield (target[0], index), state

    def _log(self, source: SubtaskKey, target: SubtaskKey, channel: ChannelState) -> tuple[SubtaskKey, ChannelState]:
        """The head of a loop has no keyed state, so any of its subtasks can process the log, over any back edge."""
        edge = back_edge(self._graph, source[0], target[0])
        assert edge is not None
        index = target[1] % self._now[target[0]].parallelism
        is_lane = spread_of(edge) is Partitioning.FORWARD
        sender = index if is_lane else source[1] % self._now[source[0]].parallelism
        side = ChannelSide.INPUT_CHANNEL
        return (target[0], index), replace(channel, side=side, vertex_id=source[0], subtask=sender, feedback=True)

    def _receivers(self, ends: tuple[str, str], then: int) -> list[int]:
        vertex, shape = self._now[ends[1]], self._shapes[ends[1]]
        if ends not in self._hashed:
            self._turn += 1
            return [self._turn % vertex.parallelism]
        if shape.max_parallelism != vertex.max_parallelism:
            return list(range(vertex.parallelism))
        return owners(key_group_range(then, shape.parallelism, shape.max_parallelism), vertex)
