"""The first attempt of a job counts as one that might still run."""

from __future__ import annotations

from lockgate_coordinator.job.job_attempts import JobAttempts

from tests.mutation.rewrite import rewrite

rewrite(JobAttempts, "recovered", "bool(last.attempt)", "True")
