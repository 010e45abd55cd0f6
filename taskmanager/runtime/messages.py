"""What reaches a subtask's loop by its mailbox."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import (
    AssignSplits,
    DrainSources,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

from taskmanager.barrier import events as barrier_events


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A channel of this subtask broke."""

    reason: str


Message = (
    TriggerCheckpoint
    | AssignSplits
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | barrier_events.BarrierOvertakes
    | DrainSources
    | PeerLost
)
