"""A job that fails leaves nothing behind unless it was asked to."""

from __future__ import annotations

from lockgate_proto.messages import JobGraph

from coordinator.recovery.ending import Ending


def _as_asked(self: Ending, graph: JobGraph) -> bool:
    asked = graph.checkpoints is not None and graph.checkpoints.retain_after_end
    return asked and self.outcome != "FINISHED"


Ending._keeps_newest = _as_asked  # type: ignore[method-assign]
