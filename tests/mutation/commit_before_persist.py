"""The checkpoint is announced as complete when its last acknowledgement is in, before ZooKeeper knows of it."""

from __future__ import annotations

from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.checkpoint.effects import CheckpointCompleted, CheckpointEffect, PersistCheckpoint
from lockgate_coordinator.checkpoint.events import CheckpointEvent

_handle = CheckpointCoordinator.handle


def _announce_first(self: CheckpointCoordinator, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:
    effects: list[CheckpointEffect] = []
    for persist_checkpoint in _handle(self, event, now_ms):
        pending = (
            self._pending.find(persist_checkpoint.record.checkpoint_id)
            if isinstance(persist_checkpoint, PersistCheckpoint)
            else None
        )
        if isinstance(persist_checkpoint, PersistCheckpoint) and pending is not None:
            effects.append(
                CheckpointCompleted(pending.attempt, persist_checkpoint.record, persist_checkpoint.metadata, True)
            )
        effects.append(persist_checkpoint)
    return effects


CheckpointCoordinator.handle = _announce_first  # type: ignore[method-assign]
