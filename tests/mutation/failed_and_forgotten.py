"""A job that fails leaves nothing behind unless it was asked to."""

from __future__ import annotations

from lockgate_coordinator.job.ending import Ending
from lockgate_coordinator.job.job_state import Outcome
from lockgate_proto.messages import JobGraph


def _as_asked(self: Ending, graph: JobGraph) -> bool:
    asked = graph.checkpoints is not None and graph.checkpoints.retain_after_end
    return asked and self.outcome is not Outcome.FINISHED


Ending._keeps_newest = _as_asked  # type: ignore[method-assign]
