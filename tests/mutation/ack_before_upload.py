"""A subtask acknowledges a checkpoint when its state is frozen, before it is stored anywhere."""

from __future__ import annotations

from lockgate_proto.messages import SubtaskState

from taskmanager.task import effects as do
from taskmanager.task import events as on
from taskmanager.task.machine import SubtaskMachine

_taken = SubtaskMachine._snapshot_taken


def _acknowledge_at_once(self: SubtaskMachine, event: on.SnapshotTaken, now_ms: int) -> list[do.Effect]:
    effects = _taken(self, event, now_ms)
    if not effects:
        return effects
    forward, *rest = effects
    return [forward, do.Acknowledge(event.checkpoint_id, SubtaskState(), event.sync_us, 0, 0), *rest]


# The machine looks its handlers up when it is made, so the class is enough.
SubtaskMachine._snapshot_taken = _acknowledge_at_once  # type: ignore[method-assign,assignment]
