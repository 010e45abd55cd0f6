"""The channels of a subtask, derived from the layout of its attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from lockgate_proto.layout import participant, subtasks_on
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import AttemptId, ChannelOpen, Edge, JobGraph, Layout, Partitioning, SubtaskId

from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import LocalOutput, OutputChannel, RemoteOutput
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.runtime.output_set import OutputSet


@dataclass(frozen=True)
class Wiring:
    """The channels of one deployment.

    Two subtasks share one channel, however many edges connect their vertices: order is kept across them.
    """

    attempt: AttemptId
    layout: Layout
    task_manager_id: str

    @property
    def graph(self) -> JobGraph:
        """Of the attempt."""
        assert self.layout.graph is not None
        return self.layout.graph

    @cached_property
    def parallelism(self) -> Mapping[str, int]:
        """Number of subtasks by vertex id."""
        return {vertex.id: vertex.parallelism for vertex in self.graph.vertices}

    @cached_property
    def here(self) -> tuple[SubtaskId, ...]:
        """The subtasks placed on this task manager."""
        return tuple(self._subtask(*key) for key in subtasks_on(self.layout, self.task_manager_id))

    def inputs(self, subtask: SubtaskId) -> tuple[ChannelId, ...]:
        """The upstream subtasks, ordered."""
        found: dict[ChannelId, None] = {}
        for edge in self.graph.edges:
            if edge.target == subtask.vertex_id:
                for index in self._peers(edge, edge.source, subtask.subtask):
                    found[ChannelId(edge.source, index)] = None
        return tuple(found)

    def outputs(
        self,
        subtask: SubtaskId,
        gates: Mapping[SubtaskId, InputGate],
        peers: PeerChannels,
        token: int,
        on_lost: Callable[[str], None],
        on_writable: Callable[[], object] | None = None,
    ) -> OutputSet:
        """The output channels, not started. gates: of every subtask of this deployment that is placed here.

        on_writable: makes them elastic, see lockgate_taskmanager.exchange.outputs.
        """
        channels: dict[tuple[str, int], OutputChannel] = {}
        targets: dict[int, str] = {}
        me = ChannelId(subtask.vertex_id, subtask.subtask)
        for number, edge in enumerate(self.graph.edges):
            if edge.source != subtask.vertex_id:
                continue
            targets[number] = edge.target
            for index in self._peers(edge, edge.target, subtask.subtask):
                target, place = self._subtask(edge.target, index), participant(self.layout, index)
                if (edge.target, index) in channels:
                    continue
                if place.task_manager_id == self.task_manager_id:
                    channel = gates[target].index_of(me)
                    assert channel is not None
                    channels[edge.target, index] = LocalOutput(gates[target], channel, on_writable)
                else:
                    hello = ChannelOpen(token, subtask, target)
                    address = place.exchange_address
                    channels[edge.target, index] = RemoteOutput(
                        peers,
                        address,
                        hello,
                        on_lost,
                        instance=place.incarnation,
                        on_writable=on_writable,
                    )
        return OutputSet(channels, targets)

    def _peers(self, edge: Edge, vertex_id: str, mine: int) -> tuple[int, ...]:
        if spread_of(edge) is Partitioning.FORWARD:
            return (mine,)
        return tuple(range(self.parallelism[vertex_id]))

    def _subtask(self, vertex_id: str, index: int) -> SubtaskId:
        return SubtaskId(self.attempt, vertex_id, index)
