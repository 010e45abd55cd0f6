"""What runs on waits for the slots of a lost part as long as there are none."""

from __future__ import annotations

from lockgate_coordinator.job.job_attempts import JobAttempts

from tests.mutation.rewrite import rewrite

rewrite(JobAttempts, "request", "self.current.await_slots(now_ms)", "pass")
