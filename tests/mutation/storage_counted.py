"""A checkpoint that the storage could not take counts as the job's own failure."""

from __future__ import annotations

from lockgate_coordinator.checkpoint.failures import CheckpointFailures, Fault

_failed = CheckpointFailures.failed


def _count(self: CheckpointFailures, fault: Fault, reason: str) -> bool:
    return _failed(self, Fault.JOB, reason) or _failed(self, fault, reason)


CheckpointFailures.failed = _count  # type: ignore[method-assign]
