"""Whatever snapshot completes first after a stop was ordered ends the attempt, as if it had been restored from it."""

from __future__ import annotations

from lockgate_coordinator.checkpoint.final import FinalCheckpoint, FinalState, Purpose


def _completed(self: FinalCheckpoint, checkpoint_id: int, now_ms: int) -> None:
    del now_ms
    if self.purpose is Purpose.STOP:
        self.checkpoint_id, self.was_restored, self.state = checkpoint_id, True, FinalState.TAKEN


assert hasattr(FinalCheckpoint, "completed")
FinalCheckpoint.completed = _completed  # type: ignore[method-assign]
