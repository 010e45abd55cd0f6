"""What is counted where effects are carried out, for the page of metrics. One for each coordinator process."""

from __future__ import annotations

import threading
from collections.abc import Collection

from lockgate_common.metrics.family import Histogram, RisingTotal, Tally
from lockgate_proto.messages import JobEvent, JobEventKind

_ENDS = {
    JobEventKind.TASK_MANAGER_LEFT: "task_manager_left",
    JobEventKind.SUBTASK_MOVED: "subtask_moved",
}
_CHECKPOINTS = {JobEventKind.CHECKPOINT_COMPLETED: "completed", JobEventKind.CHECKPOINT_ABORTED: "aborted"}


class JobMeters:
    """Of one job under this leader. Thread safe, but for `records`, which is the collector's."""

    def __init__(self) -> None:
        self.checkpoints = Tally()
        """By result and reason."""
        self.ends = Tally()
        """Attempts that were given up, by cause."""
        self.deployments = Tally()
        self.checkpoint_durations = Histogram()
        self.records = RisingTotal()

    def count(self, event: JobEvent, reason: str) -> None:
        """An event of the job. reason: see Emit."""
        if event.kind in _CHECKPOINTS:
            self.checkpoints.add((_CHECKPOINTS[event.kind], reason.lower()))
        elif event.kind is JobEventKind.ATTEMPT_FAILED:
            self.ends.add(reason.lower())
        elif event.kind in _ENDS:
            self.ends.add(_ENDS[event.kind])
        elif event.kind is JobEventKind.ATTEMPT_DEPLOYED:
            self.deployments.add()


class Meters:
    """Thread safe."""

    def __init__(self) -> None:
        self.grants, self.revocations, self.fenced_writes = Tally(), Tally(), Tally()
        self.takeovers, self.writes, self.reads = Histogram(), Histogram(), Histogram()
        self._jobs: dict[str, JobMeters] = {}
        self._lock = threading.Lock()

    def job(self, key: str) -> JobMeters:
        """Those of one job."""
        with self._lock:
            return self._jobs.setdefault(key, JobMeters())

    def keep(self, keys: Collection[str]) -> None:
        """Forgets the other jobs."""
        with self._lock:
            self._jobs = {key: meters for key, meters in self._jobs.items() if key in keys}
