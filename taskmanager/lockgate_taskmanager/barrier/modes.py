"""Selects the barrier handler for a job's checkpoint mode."""

from __future__ import annotations

from typing import Protocol

from lockgate_proto.messages import CheckpointMode, JobGraph

from lockgate_taskmanager.barrier.events import Effect, Event
from lockgate_taskmanager.barrier.handler import BarrierHandler
from lockgate_taskmanager.barrier.tracker import BarrierTracker


class Barriers(Protocol):
    """The interface that the handlers of all modes share."""

    @property
    def held(self) -> frozenset[int]:
        """Channels from which nothing may be taken now."""
        ...

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handles one event; returns the effects in order.

        Raises IllegalTransition when the caller breaks the contract.
        """
        ...


def mode_of(graph: JobGraph) -> CheckpointMode:
    """The job's checkpoint mode; EXACTLY_ONCE by default."""
    return (graph.checkpoints.mode if graph.checkpoints is not None else None) or CheckpointMode.EXACTLY_ONCE


def barriers_for(mode: CheckpointMode, channel_count: int, feedback: frozenset[int] = frozenset()) -> Barriers:
    """A new handler for a subtask with `channel_count` input channels (at least one).

    feedback: the back edges of loops among them; a job AT_LEAST_ONCE has none.
    """
    if mode is CheckpointMode.AT_LEAST_ONCE:
        return BarrierTracker(channel_count)
    return BarrierHandler(channel_count, feedback)
