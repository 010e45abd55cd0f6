"""A leader that adopts an attempt leaves the checkpoints under way to themselves: channels wait for their barriers."""

from __future__ import annotations

from lockgate_coordinator.job.attempt import Attempt

from tests.mutation.rewrite import rewrite

rewrite(Attempt, "take_over", "newest_begun_id > completed_id", "False")
