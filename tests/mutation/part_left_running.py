"""Of a job that is broken off, what began in earlier attempts runs on."""

from __future__ import annotations

from lockgate_coordinator.runtime.job_runner import JobRunner

from tests.mutation.rewrite import rewrite

rewrite(JobRunner, "_persist", "slot_ids(self.attempt, record)", "[self.attempt] * len(record.task_manager_ids)")
