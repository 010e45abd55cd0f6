"""Attributes checkpoint failures, and decides how many consecutive failures of the job itself are too many.

Only failures of the job itself count: it declined, or took too long. A storage that is full or away does not count: no
restart helps, so the attempt runs on, and the status reports what it waits for. Failures of the leader do not count.

An expired checkpoint may be either. Its subtasks are notified, and those that were still storing their snapshot report
that. Until all missing subtasks have reported, or ANSWER_MS have passed, the cause is in doubt. If one of them reports
that it still processes records in flight from before a change of parallelism, the checkpoint does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lockgate_coordinator.graph.execution_graph import SubtaskKey

ANSWER_MS = 5_000
"""How long subtasks may take to report that the storage prevented a timely acknowledgement."""


class Fault(Enum):
    """The cause of an aborted checkpoint."""

    JOB = "JOB"
    STORAGE = "STORAGE"
    NONE = "NONE"


class FailureReason(Enum):
    """Why a checkpoint is aborted; the value is the text when no detail is known."""

    ID_NOT_WRITTEN = "its id could not be written"
    DECLINED = "a subtask declined it"
    STORAGE_DECLINED = "a subtask could not store its state"
    EXPIRED = "it was not acknowledged in time"
    BASE_MISSING = "it builds on a snapshot that is missing"
    INCOMPLETE = "it is full, but builds on another snapshot"
    NOT_WRITTEN = "it could not be written"
    STORAGE_FAILED = "its metadata could not be stored"
    STORE_AWAY = "ZooKeeper was not reachable"
    SUBSUMED = "a newer checkpoint subsumes it"
    SOURCES_STOP = "the sources stop reading"
    ATTEMPT_ENDED = "its attempt has ended"

    @property
    def fault(self) -> Fault:
        """The fault; in doubt for an expired checkpoint."""
        return _FAULTS.get(self, Fault.NONE)


_FAULTS: Mapping[FailureReason, Fault] = {
    FailureReason.DECLINED: Fault.JOB,
    FailureReason.INCOMPLETE: Fault.JOB,
    FailureReason.NOT_WRITTEN: Fault.JOB,
    FailureReason.STORAGE_DECLINED: Fault.STORAGE,
    FailureReason.STORAGE_FAILED: Fault.STORAGE,
}


@dataclass(slots=True)
class _Doubt:
    """A checkpoint that ran out of time. missing: subtasks that have neither acknowledged nor blamed the storage."""

    checkpoint_id: int
    missing: set[SubtaskKey]
    reason: str
    deadline_ms: int


class CheckpointFailures:
    """The consecutive failures of one job under one leader."""

    def __init__(self, tolerable: int) -> None:
        """tolerable: number of the job's own failures that are tolerated."""
        self._tolerable = tolerable
        self._count = 0
        self._doubt: _Doubt | None = None
        self._durable_ms = 0
        self._trouble = ""

    def started(self, now_ms: int) -> None:
        """A new attempt is running."""
        self._count, self._doubt = 0, None
        self._durable_ms, self._trouble = now_ms, ""

    def completed(self, now_ms: int) -> None:
        """A checkpoint of the attempt is durable."""
        self.started(now_ms)

    def stopped(self) -> None:
        """The attempt has ended; doubtful failures are irrelevant."""
        self._doubt, self._trouble = None, ""

    def failed(self, fault: Fault, reason: str) -> bool:
        """A checkpoint of the attempt was aborted. True when the limit is exceeded. reason: a sentence."""
        if fault is Fault.STORAGE:
            self._trouble = reason
        elif fault is Fault.JOB:
            self._count += 1
        return self._count > self._tolerable

    def expired(self, checkpoint_id: int, missing: frozenset[SubtaskKey], reason: str, now_ms: int) -> bool:
        """A checkpoint was not acknowledged in time. True when the limit is exceeded regardless of the cause."""
        overdue = self._doubt is not None and self.failed(Fault.JOB, self._doubt.reason)
        self._doubt = _Doubt(checkpoint_id, set(missing), reason, now_ms + ANSWER_MS)
        return overdue

    def excused(self, checkpoint_id: int, subtask: SubtaskKey, reason: str) -> None:
        """A subtask reports that it was still storing its part when that checkpoint expired."""
        doubt = self._doubt
        if doubt is None or doubt.checkpoint_id != checkpoint_id:
            return
        doubt.missing.discard(subtask)
        if not doubt.missing:
            self._doubt = None
            self.failed(Fault.STORAGE, reason)

    def forgiven(self, checkpoint_id: int, subtask: SubtaskKey) -> None:
        """A subtask reports that it was still replaying records in flight when that checkpoint expired.

        One is enough: the others wait for the barrier behind those records. A restart would replay them anew.
        """
        doubt = self._doubt
        if doubt is not None and doubt.checkpoint_id == checkpoint_id and subtask in doubt.missing:
            self._doubt = None

    def overdue(self, now_ms: int) -> str:
        """The reason, if there are too many because subtasks have not blamed the storage in time; else ""."""
        doubt = self._doubt
        if doubt is None or now_ms < doubt.deadline_ms:
            return ""
        self._doubt = None
        return doubt.reason if self.failed(Fault.JOB, doubt.reason) else ""

    def next_wake_ms(self) -> int | None:
        """When `overdue` may change without an event."""
        return self._doubt.deadline_ms if self._doubt is not None else None

    @property
    def trouble(self) -> tuple[int, str] | None:
        """Since when (monotonic ms) nothing was made durable because of the storage, and why; None when all is well."""
        return (self._durable_ms, self._trouble) if self._trouble else None
