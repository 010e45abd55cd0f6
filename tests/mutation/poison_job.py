"""However many leaders have died of a job, the next one recovers it beside all others."""

from __future__ import annotations

from coordinator.runtime.job_runner import JobRunner
from coordinator.runtime.recovery_line import RecoveryLine


def _entered(self: RecoveryLine, runner: JobRunner, deaths: int) -> None:
    self._begin(runner, deaths)


assert hasattr(RecoveryLine, "_entered")
RecoveryLine._entered = _entered  # type: ignore[method-assign]
