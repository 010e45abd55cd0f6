"""Everything a JobMaster can be told. The runtime makes these; `JobMaster.handle` takes them one at a time.

Every event may come late, twice, or for an attempt that is gone: the JobMaster ignores what no longer fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lockgate_proto.messages import (
    AttemptGone,
    AttemptId,
    AttemptRecord,
    CheckpointCommitted,
    CheckpointMetadata,
    CompletedCheckpoint,
    FirstRecord,
    SplitsDiscovered,
    SubtaskCounters,
    SubtaskReport,
)

from coordinator.checkpoint.events import (
    Acknowledged,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    CheckpointPersisted,
    CheckpointPersistFailed,
    Declined,
    Resumed,
    SavepointRequested,
    Suspended,
    Tick,
)
from coordinator.graph.slots import SlotOffer


@dataclass(frozen=True, slots=True)
class Recovered:
    """The job's records have been read after the grant. The first event of every JobMaster.

    attempt: the stored record, None for a job that never ran.
    completed: every CompletedCheckpoint record, newest first (savepoints included).
    metadata: content of the newest one's `_metadata`; when `completed` is empty, that of the checkpoint which
    JobRecord.restore_from names, or None. `completed` without readable metadata is a RecoveryFailed instead.
    next_checkpoint_id: the stored counter plus one (1 for a new job).
    """

    attempt: AttemptRecord | None
    completed: tuple[CompletedCheckpoint, ...]
    metadata: CheckpointMetadata | None
    next_checkpoint_id: int


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """The snapshot to start from cannot be read.

    reason: a sentence for the operator that names the file. retryable: the storage may come back (the JobMaster
    asks again with the effect Recover); else the file is missing or corrupt, the job fails and nothing is deleted.
    attempt, completed, next_checkpoint_id: as in Recovered.
    """

    reason: str
    retryable: bool
    attempt: AttemptRecord | None = None
    completed: tuple[CompletedCheckpoint, ...] = ()
    next_checkpoint_id: int = 1


@dataclass(frozen=True, slots=True)
class SlotsOffered:
    """Answer to RequestSlots(request): slot i is where subtask i of every vertex goes. Stale requests are ignored."""

    request: int
    slots: tuple[SlotOffer, ...]


@dataclass(frozen=True, slots=True)
class SlotsMissing:
    """RequestSlots(request) cannot be met for now. May be repeated when the numbers change. Display only."""

    request: int
    free_slots: int
    task_managers: int


@dataclass(frozen=True, slots=True)
class AttemptPersisted:
    """Answer to PersistAttempt: the record of this attempt is written."""

    attempt: int


@dataclass(frozen=True, slots=True)
class ResultPersisted:
    """Answer to PersistResult: the job has ended."""


class PersistKind(Enum):
    """Which record could not be written."""

    ATTEMPT = "attempt"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """Answer to PersistAttempt or PersistResult: certainly not written. The JobMaster tries again.

    An unknown outcome must be read back first. A lost leadership is not reported: the JobMaster is dropped.
    attempt: of the record, for ATTEMPT; 0 stands for whichever is being written.
    """

    kind: PersistKind
    reason: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class TaskManagerLost:
    """The task manager is gone, or a Send to it could not be delivered. To every JobMaster."""

    task_manager_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class StillRunning:
    """A task manager has registered and still runs something of this job (Register.running).

    The JobMaster cancels it there unless it is the current attempt, or is about to be replaced by a Deploy.
    """

    task_manager_id: str
    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Reported:
    """A subtask has changed its phase."""

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
    """Counters out of a heartbeat, those of this job only."""

    counters: tuple[SubtaskCounters, ...]


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A client wants the job stopped for good. Idempotent."""


Event = (
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
    | CancelRequested
    | Acknowledged
    | Declined
    | CheckpointIdPersisted
    | CheckpointIdPersistFailed
    | CheckpointPersisted
    | CheckpointPersistFailed
    | SavepointRequested
    | Suspended
    | Resumed
    | Tick
)

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
    "Event",
    "FirstRecordSeen",
    "Gone",
    "PersistFailed",
    "PersistKind",
    "Recovered",
    "RecoveryFailed",
    "Reported",
    "ResultPersisted",
    "Resumed",
    "SavepointRequested",
    "SlotOffer",
    "SlotsMissing",
    "SlotsOffered",
    "SplitsFound",
    "StillRunning",
    "Suspended",
    "TaskManagerLost",
    "Tick",
]
