"""What is counted where effects are carried out, for the page of metrics."""

from __future__ import annotations

from lockgate_common.metrics.family import Histogram, RisingTotal, Tally
from lockgate_proto.messages import FailureCause, JobEventKind

from lockgate_coordinator.job.effects import Emit

_ENDS = {
    JobEventKind.TASK_MANAGER_LEFT: "task_manager_left",
    JobEventKind.SUBTASK_MOVED: "subtask_moved",
}
_CAUSES = (
    *(cause.name.lower() for cause in FailureCause if cause is not FailureCause.FAILURE_CAUSE_UNSPECIFIED),
    JobEventKind.TASK_MANAGER_LOST.name.lower(),
    *_ENDS.values(),
)
_CHECKPOINTS = {JobEventKind.CHECKPOINT_COMPLETED: "completed", JobEventKind.CHECKPOINT_ABORTED: "aborted"}


class JobMeters:
    """Of one job under this leader. Thread safe, but for `records`, which is the collector's."""

    def __init__(self) -> None:
        self.checkpoints = Tally()
        """By result and reason."""
        self.ends = Tally(_CAUSES)
        """Attempts that were given up, by cause. From 0 on: of a series that begins with 1, no rate shows the first."""
        self.deployments = Tally()
        self.checkpoint_durations = Histogram()
        self.records = RisingTotal()

    def count(self, effect: Emit) -> None:
        """An event of the job."""
        kind, reason = effect.event.kind, effect.reason.name.lower() if effect.reason is not None else ""
        if kind in _CHECKPOINTS:
            self.checkpoints.add((_CHECKPOINTS[kind], reason))
        elif kind is JobEventKind.ATTEMPT_FAILED:
            self.ends.add(reason)
        elif kind in _ENDS:
            self.ends.add(_ENDS[kind])
        elif kind is JobEventKind.ATTEMPT_DEPLOYED:
            self.deployments.add()
        if effect.took_ms is not None:
            self.checkpoint_durations.observe(effect.took_ms / 1_000)


class Meters:
    """Of the process, whatever its jobs are. Thread safe."""

    def __init__(self) -> None:
        self.grants, self.revocations, self.fenced_writes = Tally(), Tally(), Tally()
        self.takeovers, self.writes, self.reads = Histogram(), Histogram(), Histogram()
