"""A part is deployed although what it makes again may be something else."""

from __future__ import annotations

from lockgate_coordinator.job.replay_gaps import ReplayGaps

from tests.mutation.rewrite import rewrite

rewrite(ReplayGaps, "update", "if report.irreproducible:", "if False:")
