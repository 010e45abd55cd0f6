"""Publishes the status and the events of one job. Actor thread only."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

from lockgate_common.clock import monotonic_ms, unix_us
from lockgate_proto.messages import CheckpointOutcome, CompletedCheckpoint, JobEvent, JobEventKind, JobStatus

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.details import SnapshotDetails
from lockgate_coordinator.checkpoint.history import CheckpointHistory
from lockgate_coordinator.job.effects import Emit
from lockgate_coordinator.job.trace import JobTracer, Starts
from lockgate_coordinator.runtime.actor import Timer
from lockgate_coordinator.runtime.meters import JobMeters
from lockgate_coordinator.runtime.runner_services import RunnerServices
from lockgate_coordinator.runtime.watch import WatchEnd, WatchHub

log = logging.getLogger(__name__)

_OFTEN = (JobEventKind.CHECKPOINT_COMPLETED, JobEventKind.FIRST_RECORD, JobEventKind.FIRST_COMMIT)
_STATUS_PAUSE_MS = 100  # between two statuses when only numbers changed
_SUBTASKS_A_MS = 10  # of a large job less often: a status names every subtask, and its watchers together take a core


class StatusPublisher:
    """An error while creating a status is logged and reported in it, and does not affect the job or the caller."""

    def __init__(self, services: RunnerServices, view: Callable[[bool], JobStatus], first: JobStatus) -> None:
        """view: creates the present status, with subtasks or without. first: the status used until `view` succeeds."""
        self.hub = WatchHub()
        self.meters = JobMeters()
        self._tracer = JobTracer(first.job_key, services.traces)
        self._services = services
        self._view = view
        self._last = first
        self._history = CheckpointHistory()
        self._is_over = False
        self._timer: Timer | None = None

    def status(self, *, with_subtasks: bool = True) -> JobStatus:
        """The present status; for a job that has ended the final one, which has no subtasks."""
        if self._is_over:
            return self._last
        try:
            found = self._view(with_subtasks)
        except Exception as error:
            what = "internal error while creating its status, see the leader's log"
            text = f"{what}: {type(error).__name__}: {error}"
            if text != self._last.message:
                log.exception("job %s: internal error while creating its status", self._last.job_key)
            self._last = dataclasses.replace(self._last, message=text)
            return self._last if with_subtasks else dataclasses.replace(self._last, subtasks=())
        if with_subtasks:
            self._last = found
        return found

    def outcomes(self, retained: Sequence[CompletedCheckpoint]) -> tuple[CheckpointOutcome, ...]:
        """What became of the checkpoints of a job that has ended, see CheckpointHistory.outcomes."""
        return self._history.outcomes(retained)

    def end(self, known: CompletedCheckpoints | None = None, **changes: Any) -> None:
        """The job has ended: fixes the final status. known: its checkpoints, if they were read. changes: fields to set
        in the status.
        """
        self._history = known.history if known is not None else self._history
        self._last = dataclasses.replace(self.status(), **{"standby_copies": None} | changes)
        self._is_over = True

    def event(self, effect: Emit, cause_id: str) -> None:
        """Keeps the event, sends it to watchers, counts and logs it. cause_id: its cause in the job's story."""
        key, kind = self._last.job_key, effect.event.kind
        event = dataclasses.replace(effect.event, unix_us=effect.event.unix_us or unix_us())
        self.note(event, effect.parts)
        self.meters.count(effect, event.unix_us)
        fields = {"attempt": event.attempt, "checkpoint": event.checkpoint_id, "cause": cause_id}
        text = "job %s: %s, attempt %d%s: %s"
        number = f", checkpoint {event.checkpoint_id}" if event.checkpoint_id else ""
        what = (key, kind.name, event.attempt, number, event.text)
        if kind is JobEventKind.CHECKPOINT_ABORTED:  # each second while a storage is away
            self._services.trouble.warning(log, f"checkpoints of {key}", text, *what, extra=fields)
        elif kind not in _OFTEN:
            log.info(text, *what, extra=fields)

    def note(self, event: JobEvent, parts: SnapshotDetails | Starts | None = None) -> None:
        """Keeps the event, which has its time, and sends it to watchers. parts: see Emit."""
        self.hub.event(event)
        self._tracer.heard(event, parts)

    def changed(self, *, at_once: bool) -> None:
        """Sends the status to watchers: at once after an event, otherwise after a pause."""
        if self._is_over:
            self.hub.status(self._last)
            self.hub.finish(WatchEnd.JOB_ENDED)
        elif self.hub.watched and at_once:
            self.hub.status(self.status())
        elif self.hub.watched and self._timer is None:
            pause_ms = max(_STATUS_PAUSE_MS, self._last.subtask_count // _SUBTASKS_A_MS)
            self._timer = self._services.actor.at(monotonic_ms() + pause_ms, self._changed_late)

    def close(self, end: WatchEnd) -> None:
        """Ends all watches."""
        if self._timer is not None:
            self._timer.cancel()
        self.hub.finish(end)

    def _changed_late(self) -> None:
        self._timer = None
        if self.hub.watched:
            self.hub.status(self.status())
