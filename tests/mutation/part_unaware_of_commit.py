"""What runs on does not hear that the checkpoint is complete which was being written when a part was lost."""

from __future__ import annotations

from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator

from tests.mutation.rewrite import rewrite

rewrite(CheckpointCoordinator, "_complete", "alive or pending.attempt == self._in_part", "alive")
