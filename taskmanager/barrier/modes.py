"""Which machine handles the barriers of a job."""

from __future__ import annotations

from typing import Protocol

from lockgate_proto.messages import CheckpointMode, JobGraph

from taskmanager.barrier.events import Effect, Event
from taskmanager.barrier.handler import BarrierHandler
from taskmanager.barrier.tracker import BarrierTracker


class Barriers(Protocol):
    """What every mode's machine can do."""

    @property
    def held(self) -> frozenset[int]:
        """Channels from which nothing may be taken now."""
        ...

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes one event and says what to do, in order. Raises IllegalTransition when the caller breaks the rules."""
        ...


def mode_of(graph: JobGraph) -> CheckpointMode:
    """The mode that a job asks for; EXACTLY_ONCE when it asks for none."""
    return (graph.checkpoints.mode if graph.checkpoints is not None else None) or CheckpointMode.EXACTLY_ONCE


def barriers_for(mode: CheckpointMode, channel_count: int, feedback: frozenset[int] = frozenset()) -> Barriers:
    """A fresh machine for a subtask with so many input channels (at least one).

    feedback: those that are back edges of loops, which a job AT_LEAST_ONCE does not have.
    """
    if mode is CheckpointMode.AT_LEAST_ONCE:
        return BarrierTracker(channel_count)
    return BarrierHandler(channel_count, feedback)
