"""What fails again and again on the same records is not recognised."""

from __future__ import annotations

from lockgate_coordinator.job.attempt import AttemptFailed
from lockgate_coordinator.job.recurrence import Recurrence


def _always_new(self: Recurrence, failed: AttemptFailed, restored_id: int) -> int:  # noqa: ARG001
    return 1


Recurrence.noted = _always_new  # type: ignore[method-assign]
