"""A leader recovers a job that two leaders have died of at once, and dies of anything else meanwhile."""

from __future__ import annotations

from lockgate_coordinator.runtime.recovery_line import RecoveryLine

from tests.mutation.rewrite import rewrite

rewrite(RecoveryLine, "_next", "deaths >= MAX_DEATHS - 1 and not self._is_proven", "False")
