"""The checkpoint is announced as complete when its last acknowledgement is in, before ZooKeeper knows of it."""

from __future__ import annotations

from coordinator.checkpoint.coordinator import CheckpointCoordinator
from coordinator.checkpoint.effects import CheckpointCompleted, CheckpointEffect, PersistCheckpoint
from coordinator.checkpoint.events import CheckpointEvent

_handle = CheckpointCoordinator.handle


def _announce_first(self: CheckpointCoordinator, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:
    effects: list[CheckpointEffect] = []
    for one in _handle(self, event, now_ms):
        pending = self._find(one.record.checkpoint_id) if isinstance(one, PersistCheckpoint) else None
        if isinstance(one, PersistCheckpoint) and pending is not None:
            effects.append(CheckpointCompleted(pending.attempt, one.record, one.metadata, True))
        effects.append(one)
    return effects


CheckpointCoordinator.handle = _announce_first  # type: ignore[method-assign]
