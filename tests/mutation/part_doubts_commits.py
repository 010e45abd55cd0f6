"""What all sinks have committed is forgotten when a part is lost."""

from __future__ import annotations

from lockgate_coordinator.job.job_attempts import JobAttempts

from tests.mutation.rewrite import rewrite

rewrite(
    JobAttempts,
    "tear_down",
    "not attempt.uncommitted(newest):",
    "not part and not attempt.uncommitted(newest):",
)
