"""A job that ends for good cancels its subtasks at once, whatever they have not shown yet."""

from __future__ import annotations

from lockgate_coordinator.job.last_commit import LastCommit


def _over(self: LastCommit, now_ms: int) -> bool:
    del self, now_ms
    return True


assert hasattr(LastCommit, "is_over")
LastCommit.is_over = _over  # type: ignore[method-assign]
