"""The channels of a subtask, derived from the layout of its attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lockgate_proto.layout import began_in, participant, subtasks_on
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import AttemptId, ChannelOpen, Edge, JobGraph, Layout, Participant, Partitioning, SubtaskId

from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import LocalOutput, OutputChannel, RemoteOutput
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.replay_log import ReplayLog
from lockgate_taskmanager.runtime.absent_peers import AbsentPeers
from lockgate_taskmanager.runtime.output_set import OutputSet


@dataclass(frozen=True)
class Wiring:
    """The channels of one deployment.

    Two subtasks share one channel, however many edges connect their vertices: order is kept across them.
    log_bytes: what each subtask may keep for receivers that start again.
    """

    attempt: AttemptId
    layout: Layout
    task_manager_id: str
    log_bytes: int = 0

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
        absent: AbsentPeers | None = None,
        restored_checkpoint_id: int = 0,
    ) -> OutputSet:
        """The output channels, not started. gates: of every subtask of this deployment that is placed here.

        on_writable: makes them elastic, see lockgate_taskmanager.exchange.outputs. absent: set where the channels to
        other task managers outlive their receivers.
        """
        channels: dict[tuple[str, int], OutputChannel] = {}
        peers_count = sum(len(self._peers(edge, edge.target, 0)) for _, edge in self._from(subtask))
        log_bytes = self.log_bytes // max(1, peers_count)
        targets: dict[int, str] = {}
        me = ChannelId(subtask.vertex_id, subtask.subtask)
        for number, edge in self._from(subtask):
            targets[number] = edge.target
            for index in self._peers(edge, edge.target, subtask.subtask):
                target, place = self._subtask(edge.target, index), participant(self.layout, index)
                if (edge.target, index) in channels:
                    continue
                if target in gates:
                    channel = gates[target].index_of(me)
                    assert channel is not None
                    channels[edge.target, index] = LocalOutput(gates[target], channel, on_writable)
                else:
                    hello = ChannelOpen(token, subtask, target)
                    log = ReplayLog(log_bytes, restored_checkpoint_id) if absent is not None else None
                    channels[edge.target, index] = _remote(peers, place, hello, on_lost, on_writable, absent, log)
        return OutputSet(channels, targets)

    def _from(self, subtask: SubtaskId) -> list[tuple[int, Edge]]:
        """Its outgoing edges, with their numbers."""
        return [found for found in enumerate(self.graph.edges) if found[1].source == subtask.vertex_id]

    def _peers(self, edge: Edge, vertex_id: str, mine: int) -> tuple[int, ...]:
        if spread_of(edge) is Partitioning.FORWARD:
            return (mine,)
        return tuple(range(self.parallelism[vertex_id]))

    def _subtask(self, vertex_id: str, index: int) -> SubtaskId:
        number = began_in(self.layout, index)
        attempt = replace(self.attempt, attempt=number) if number else self.attempt
        return SubtaskId(attempt, vertex_id, index)


def _remote(
    peers: PeerChannels,
    place: Participant,
    hello: ChannelOpen,
    on_lost: Callable[[str], None],
    on_writable: Callable[[], object] | None,
    absent: AbsentPeers | None,
    log: ReplayLog | None,
) -> RemoteOutput:
    """The channel to a subtask of another task manager, or one of this that began in another attempt."""
    if absent is None or hello.target is None:
        address, instance = place.exchange_address, place.incarnation
        return RemoteOutput(peers, address, hello, on_lost, instance=instance, on_writable=on_writable)
    slot = hello.target.subtask

    def lost(reason: str) -> None:
        target = output.target
        attempt = target.attempt.attempt if target is not None and target.attempt is not None else 0
        absent.lost(slot, attempt, reason, lambda: not output.is_absent)

    output = RemoteOutput(peers, place.exchange_address, hello, lost, instance=place.incarnation, log=log)
    return output
