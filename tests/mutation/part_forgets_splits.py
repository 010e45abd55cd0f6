"""When a part restarts, the splits that the others were assigned since the snapshot are assigned again."""

from __future__ import annotations

from lockgate_coordinator.job.splits import SplitAssigner

from tests.mutation.rewrite import rewrite

rewrite(
    SplitAssigner,
    "carry_on",
    "self._known.update((split, index) for split, index in before._known.items() if index in stay)",
    "pass",
)
