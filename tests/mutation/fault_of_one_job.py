"""A mistake that the coordinator makes over one job ends its term, and so every job's attempt."""

from __future__ import annotations

from lockgate_coordinator.runtime.job_runner import JobRunner


def _end_the_term(self: JobRunner, what: str, error: BaseException) -> None:
    self._services.persistence._fence.step_down(f"a mistake while {what}: {error}")


assert hasattr(JobRunner, "_mistake")
JobRunner._mistake = _end_the_term  # type: ignore[method-assign]
