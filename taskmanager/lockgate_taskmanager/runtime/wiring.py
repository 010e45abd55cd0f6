"""The channels of a subtask, derived from the graph and the placements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockgate_proto.loops import spread_of
from lockgate_proto.messages import ChannelOpen, Deploy, Edge, Partitioning, Placement, SubtaskId

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

    deploy: Deploy
    task_manager_id: str

    @property
    def parallelism(self) -> Mapping[str, int]:
        """Number of subtasks by vertex id."""
        counts: dict[str, int] = {}
        for placement in self.deploy.placements:
            counts[placement.vertex_id] = counts.get(placement.vertex_id, 0) + 1
        return counts

    def here(self) -> tuple[SubtaskId, ...]:
        """The subtasks placed on this task manager."""
        mine = (placement for placement in self.deploy.placements if placement.task_manager_id == self.task_manager_id)
        return tuple(self._subtask(placement) for placement in mine)

    def inputs(self, subtask: SubtaskId) -> tuple[ChannelId, ...]:
        """The upstream subtasks, ordered. Raises ValueError when a placement is missing."""
        found: dict[ChannelId, None] = {}
        for edge in self._edges():
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
        for number, edge in enumerate(self._edges()):
            if edge.source != subtask.vertex_id:
                continue
            targets[number] = edge.target
            for index in self._peers(edge, edge.target, subtask.subtask):
                placement = self._placement(edge.target, index)
                target = self._subtask(placement)
                if (edge.target, index) in channels:
                    continue
                if placement.task_manager_id == self.task_manager_id:
                    channel = gates[target].index_of(me)
                    assert channel is not None
                    channels[edge.target, index] = LocalOutput(gates[target], channel, on_writable)
                else:
                    hello = ChannelOpen(token, subtask, target)
                    address = placement.exchange_address
                    channels[edge.target, index] = RemoteOutput(
                        peers,
                        address,
                        hello,
                        on_lost,
                        instance=self._instance(placement.task_manager_id),
                        on_writable=on_writable,
                    )
        return OutputSet(channels, targets)

    def _edges(self) -> tuple[Edge, ...]:
        return self.deploy.graph.edges if self.deploy.graph is not None else ()

    def _peers(self, edge: Edge, vertex_id: str, mine: int) -> tuple[int, ...]:
        if spread_of(edge) is Partitioning.FORWARD:
            return (mine,)
        count = self.parallelism.get(vertex_id, 0)
        if count == 0:
            raise ValueError(f"the deployment places no subtask of vertex {vertex_id!r}")
        return tuple(range(count))

    def _placement(self, vertex_id: str, subtask: int) -> Placement:
        for placement in self.deploy.placements:
            if placement.vertex_id == vertex_id and placement.subtask == subtask:
                return placement
        raise ValueError(f"the deployment places no subtask {subtask} of vertex {vertex_id!r}")

    def _instance(self, task_manager_id: str) -> str:
        known = (known for known in self.deploy.incarnations if known.task_manager_id == task_manager_id)
        return next((found.incarnation for found in known), "")

    def _subtask(self, placement: Placement) -> SubtaskId:
        return SubtaskId(self.deploy.attempt, placement.vertex_id, placement.subtask)
