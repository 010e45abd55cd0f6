"""What was not kept before a checkpoint counts as missing behind it."""

from __future__ import annotations

from lockgate_coordinator.job.replay_gaps import ReplayGaps

from tests.mutation.rewrite import rewrite

rewrite(ReplayGaps, "problem", " and checkpoint_id < gap.since", "")
