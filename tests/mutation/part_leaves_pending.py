"""A checkpoint in progress stays so when a part of the attempt ends, and completes without that part."""

from __future__ import annotations

from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator

from tests.mutation.rewrite import rewrite

rewrite(
    CheckpointCoordinator,
    "_ended",
    "if pending.state is not PendingState.PERSISTING:",
    "if pending.state is not PendingState.PERSISTING and not in_part:",
)
