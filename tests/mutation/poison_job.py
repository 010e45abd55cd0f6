"""However many leaders have died of a job, the next one recovers it beside all others."""

from __future__ import annotations

from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_coordinator.runtime.recovery_line import RecoveryLine


def _enter(self: RecoveryLine, runner: JobRunner, deaths: int) -> None:
    self._begin(runner, deaths)


assert hasattr(RecoveryLine, "enter")
RecoveryLine.enter = _enter  # type: ignore[method-assign]
