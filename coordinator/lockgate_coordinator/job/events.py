"""The events of a JobMaster. The runtime creates them; `JobMaster.handle` takes them one at a time.

Every event may come late, twice, or for an earlier attempt: the JobMaster ignores events that no longer apply.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from lockgate_proto.messages import (
    AttemptGone,
    AttemptId,
    AttemptProgress,
    AttemptRecord,
    CheckpointCommitted,
    CheckpointMetadata,
    CompletedCheckpoint,
    FirstRecord,
    JobOrders,
    SplitsDiscovered,
    SubtaskCounters,
    SubtaskReport,
    VertexParallelism,
)

from lockgate_coordinator.checkpoint.events import (
    Acknowledged,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    CheckpointPersisted,
    CheckpointPersistFailed,
    Declined,
    DisposalBegun,
    Resumed,
    SavepointDisposed,
    SavepointRequested,
    Suspended,
    Tick,
)
from lockgate_coordinator.graph.slots import SlotOffer, SlotsMissing, SlotsOffered, Spare


@dataclass(frozen=True, slots=True)
class Recovered:
    """The job's records have been read after the grant. The first event of every JobMaster.

    attempt: the stored record, None for a job that never ran.
    completed: every CompletedCheckpoint record, newest first (savepoints included).
    metadata: content of the newest one's `_metadata`; when `completed` is empty, that of the checkpoint which
    JobRecord.restore_from names, or None. `completed` without readable metadata is a RecoveryFailed instead.
    next_checkpoint_id: the stored counter plus one (1 for a new job).
    orders: what clients have ordered since the submission.
    """

    attempt: AttemptRecord | None
    completed: tuple[CompletedCheckpoint, ...]
    metadata: CheckpointMetadata | None
    next_checkpoint_id: int
    orders: JobOrders = field(default_factory=JobOrders)


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """The snapshot to start from cannot be read.

    reason: a sentence for the operator that names the file. retryable: the storage may come back (the JobMaster tries
    again with the effect Recover); otherwise the file is missing or corrupt, the job fails and nothing is deleted.
    attempt, completed, next_checkpoint_id: as in Recovered.
    """

    reason: str
    retryable: bool
    attempt: AttemptRecord | None = None
    completed: tuple[CompletedCheckpoint, ...] = ()
    next_checkpoint_id: int = 1


@dataclass(frozen=True, slots=True)
class AttemptPersisted:
    """Answer to PersistAttempt: the record of this attempt is written."""

    attempt: int


@dataclass(frozen=True, slots=True)
class ResultPersisted:
    """Answer to PersistResult: the job has ended."""


class PersistKind(Enum):
    """The record that could not be written."""

    ATTEMPT = "attempt"
    RESULT = "result"
    ORDERS = "orders"


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """Answer to PersistAttempt, PersistResult or PersistOrders: certainly not written. The JobMaster tries again.

    An unknown outcome must be read back first. A lost leadership is not reported: the JobMaster is dropped.
    attempt: of the record, for ATTEMPT; 0 stands for the one being written.
    """

    kind: PersistKind
    reason: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class OrdersPersisted:
    """Answer to PersistOrders: the record is written."""

    orders: JobOrders


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    """A client wants another parallelism. request_id: returned in AnswerRescale exactly once.

    parallelism: of the vertices to change; available_slots: free slots, and those that the job holds.
    timeout_ms: for the snapshot; 0 means the job's checkpoint timeout.
    """

    request_id: str
    parallelism: tuple[VertexParallelism, ...]
    available_slots: int
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A client wants the job to end with a savepoint. request_id: returned in AnswerSavepoint exactly once.

    drain: sources stop reading first. timeout_ms: for the savepoint; 0 means the job's checkpoint timeout.
    """

    request_id: str
    drain: bool = False
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class TaskManagerLost:
    """The task manager is gone, or a Send to it could not be delivered. To every JobMaster.

    planned: it left as planned, or was gone before anything was sent there. Not a failure of the job.
    """

    task_manager_id: str
    reason: str
    planned: bool = False


@dataclass(frozen=True, slots=True)
class StillRunning:
    """A task manager has registered and still runs an attempt of this job (Register.running).

    The JobMaster cancels it there unless it is the current attempt, may be adopted, or is about to be replaced by a
    Deploy. progress: of its subtasks, None where it was not reported.
    """

    task_manager_id: str
    attempt: AttemptId
    progress: AttemptProgress | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """A subtask's phase has changed."""

    report: SubtaskReport


@dataclass(frozen=True, slots=True)
class FirstRecordSeen:
    """Records beyond the snapshot have reached a sink operator."""

    first: FirstRecord


@dataclass(frozen=True, slots=True)
class SplitsFound:
    """Answer of a task manager to DiscoverSplits."""

    found: SplitsDiscovered


@dataclass(frozen=True, slots=True)
class Committed:
    """A subtask's part of a completed checkpoint is visible in its sinks."""

    committed: CheckpointCommitted


@dataclass(frozen=True, slots=True)
class Gone:
    """Every subtask of the attempt on this task manager has ended."""

    task_manager_id: str
    gone: AttemptGone


@dataclass(frozen=True, slots=True)
class CountersReported:
    """The counters of this job in a heartbeat.

    spares: free slots that the job would certainly get if it requested its slots again now.
    """

    counters: tuple[SubtaskCounters, ...]
    spares: tuple[Spare, ...] = ()


Report = Reported | Acknowledged | Declined | Committed | FirstRecordSeen | SplitsFound | Gone | CountersReported
"""Reports of task managers about an attempt."""


@dataclass(frozen=True, slots=True)
class TaskManagerReport:
    """A report with its sender. It counts only if the subtask is placed on that task manager: see provenance.py."""

    task_manager_id: str
    report: Report


@dataclass(frozen=True, slots=True)
class TaskManagerReports:
    """Reports that came together: handled in order, as if each had come alone, before anything follows from them."""

    task_manager_id: str
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A client cancels the job. Idempotent."""


SingleEvent = (
    Recovered
    | RecoveryFailed
    | SlotsOffered
    | SlotsMissing
    | AttemptPersisted
    | ResultPersisted
    | PersistFailed
    | TaskManagerLost
    | StillRunning
    | Reported
    | FirstRecordSeen
    | SplitsFound
    | Committed
    | Gone
    | CountersReported
    | TaskManagerReport
    | CancelRequested
    | Acknowledged
    | Declined
    | CheckpointIdPersisted
    | CheckpointIdPersistFailed
    | CheckpointPersisted
    | CheckpointPersistFailed
    | SavepointRequested
    | RescaleRequested
    | StopRequested
    | OrdersPersisted
    | DisposalBegun
    | SavepointDisposed
    | Suspended
    | Resumed
    | Tick
)

Event = SingleEvent | TaskManagerReports


def singles(event: Event) -> tuple[SingleEvent, ...]:
    """The event itself, or the reports of which it consists."""
    if isinstance(event, TaskManagerReports):
        return tuple(TaskManagerReport(event.task_manager_id, report) for report in event.reports)
    return (event,)


__all__ = [
    "Acknowledged",
    "AttemptPersisted",
    "CancelRequested",
    "CheckpointIdPersistFailed",
    "CheckpointIdPersisted",
    "CheckpointPersistFailed",
    "CheckpointPersisted",
    "Committed",
    "CountersReported",
    "Declined",
    "DisposalBegun",
    "Event",
    "FirstRecordSeen",
    "Gone",
    "OrdersPersisted",
    "PersistFailed",
    "PersistKind",
    "Recovered",
    "RecoveryFailed",
    "Report",
    "Reported",
    "RescaleRequested",
    "ResultPersisted",
    "Resumed",
    "SavepointDisposed",
    "SavepointRequested",
    "SingleEvent",
    "SlotOffer",
    "SlotsMissing",
    "SlotsOffered",
    "Spare",
    "SplitsFound",
    "StillRunning",
    "StopRequested",
    "Suspended",
    "TaskManagerLost",
    "TaskManagerReport",
    "TaskManagerReports",
    "Tick",
    "singles",
]
