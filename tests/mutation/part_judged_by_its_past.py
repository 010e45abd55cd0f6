"""Subtasks that run on beside a new part are compared with it by all their work since they began."""

from __future__ import annotations

from lockgate_coordinator.job.job_attempts import JobAttempts

from tests.mutation.rewrite import rewrite

rewrite(JobAttempts, "running", "is_adopted=is_adopted or bool(numbers)", "is_adopted=is_adopted")
