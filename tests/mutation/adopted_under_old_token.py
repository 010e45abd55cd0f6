"""A leader that may adopt an attempt goes on with it under the token of the dead leader."""

from __future__ import annotations

from lockgate_coordinator.job.job_attempts import JobAttempts

from tests.mutation.rewrite import rewrite

rewrite(
    JobAttempts,
    "recovered",
    "self._is_known = bool(last.attempt)",
    "self._is_known, self.token = True, last.token if self._adoption is not None else self.token",
)
