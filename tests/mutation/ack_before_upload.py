"""A subtask acknowledges a checkpoint when its state is frozen, before it is stored anywhere."""

from __future__ import annotations

from lockgate_proto.messages import SubtaskState
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.machine import SubtaskMachine

_taken, _done = SubtaskMachine._snapshot_taken, SubtaskMachine._upload_done


def _acknowledge_at_once(self: SubtaskMachine, event: on.SnapshotTaken) -> list[do.Effect]:
    effects = _taken(self, event)
    if not effects:
        return effects
    forward, *rest = effects
    return [forward, do.Acknowledge(event.checkpoint_id, SubtaskState(), event.sync_us, 0, 0), *rest]


def _has_said_so(self: SubtaskMachine, event: on.UploadDone) -> list[do.Effect]:
    return [acknowledge for acknowledge in _done(self, event) if not isinstance(acknowledge, do.Acknowledge)]


SubtaskMachine._snapshot_taken = _acknowledge_at_once  # type: ignore[method-assign,assignment]
SubtaskMachine._upload_done = _has_said_so  # type: ignore[method-assign,assignment]
