"""A job that fails leaves nothing behind unless it was asked to."""

from __future__ import annotations

from lockgate_coordinator.job.ending import Ending
from lockgate_proto.messages import JobGraph


def _as_asked(_self: Ending, graph: JobGraph) -> bool:
    return graph.checkpoints is not None and graph.checkpoints.retain_after_end


Ending._keeps_newest = _as_asked  # type: ignore[method-assign]
