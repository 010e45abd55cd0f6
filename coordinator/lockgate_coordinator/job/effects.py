"""Effects of a JobMaster. The runtime carries them out in the order of the list.

Persist* of one job run on its ordered worker, like the part of Discard* that deletes a record; their answers are
events. Files are deleted on another worker, after their records, and CleanUp runs after those. Nothing may be reordered
across a Send that follows a Persist answer: the JobMaster itself waits for answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lockgate_proto.messages import (
    AssignSplits,
    AssignSplitsTogether,
    AttemptRecord,
    AwaitPart,
    CancelAttempt,
    CompletedCheckpoint,
    Deploy,
    DiscoverSplits,
    DrainSources,
    FailureCause,
    JobEvent,
    JobEventKind,
    JobOrders,
    JobResult,
    KeepCopies,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    PrepareJob,
    RejoinPart,
    TriggerCheckpoint,
    VertexParallelism,
)

from lockgate_coordinator.checkpoint.details import SnapshotDetails
from lockgate_coordinator.checkpoint.effects import (
    AnswerSavepoint,
    DiscardCheckpoint,
    DiscardPending,
    PersistCheckpoint,
    PersistCheckpointId,
)
from lockgate_coordinator.checkpoint.failures import FailureReason
from lockgate_coordinator.graph.slots import ReleaseSlots, RequestSlots
from lockgate_coordinator.job.trace import Starts

ControlBody = (
    Deploy
    | CancelAttempt
    | TriggerCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | DiscoverSplits
    | AssignSplits
    | AssignSplitsTogether
    | PrepareJob
    | KeepCopies
    | DrainSources
    | AwaitPart
    | RejoinPart
)


@dataclass(frozen=True, slots=True)
class Recover:
    """Read the job's records and snapshot again, after a retryable RecoveryFailed. Answer: Recovered or that again."""


@dataclass(frozen=True, slots=True)
class PersistAttempt:
    """Write the attempt record (fenced). Answer: AttemptPersisted or PersistFailed(ATTEMPT)."""

    record: AttemptRecord


@dataclass(frozen=True, slots=True)
class PersistResult:
    """Write the terminal result (fenced, dirty). Answer: ResultPersisted or PersistFailed(RESULT)."""

    result: JobResult


@dataclass(frozen=True, slots=True)
class PersistOrders:
    """Write the orders record (fenced). Answer: OrdersPersisted or PersistFailed(ORDERS)."""

    orders: JobOrders


@dataclass(frozen=True, slots=True)
class AnswerRescale:
    """Answer a RescaleRequested: the parallelism of every vertex from now on, or `error`, a sentence.

    after: attempts with a higher number have this parallelism, 0 when no restart is needed. busy: the error is
    temporary, and the client may try again.
    """

    request_id: str
    parallelism: tuple[VertexParallelism, ...] = ()
    error: str = ""
    after: int = 0
    busy: bool = False


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The job has ended: delete its records (fenced; the result becomes clean), then its checkpoint directory.

    retained: checkpoints whose folders stay, as in JobResult.retained. A leader that finds a dirty result does the same
    from the result alone. The last effect of a JobMaster, which may be dropped then.
    """

    retained: tuple[CompletedCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Send one message to a task manager; the runtime stamps the token. In order per task manager.

    If the task manager is not connected the runtime answers TaskManagerLost.
    """

    task_manager_id: str
    body: ControlBody


Reason = FailureReason | FailureCause | Literal[JobEventKind.TASK_MANAGER_LOST]


@dataclass(frozen=True, slots=True)
class Emit:
    """Notify the watchers. The runtime sets `unix_us` where it is 0.

    reason: of an aborted checkpoint or a failed attempt. took_ms: of a completed checkpoint. parts: what the subtasks
    contributed, for traces.
    """

    event: JobEvent
    reason: Reason | None = None
    took_ms: int | None = None
    parts: SnapshotDetails | Starts | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this monotonic time. Replaces the previous request."""

    at_ms: int


Durable = (
    Recover
    | PersistAttempt
    | PersistCheckpointId
    | PersistCheckpoint
    | PersistResult
    | PersistOrders
    | DiscardCheckpoint
    | DiscardPending
    | CleanUp
)
"""Effects on ZooKeeper or on files."""

Effect = Durable | RequestSlots | ReleaseSlots | Send | Emit | AnswerSavepoint | AnswerRescale | WakeAt

__all__ = [
    "AnswerRescale",
    "AnswerSavepoint",
    "CleanUp",
    "ControlBody",
    "DiscardCheckpoint",
    "DiscardPending",
    "Durable",
    "Effect",
    "Emit",
    "PersistAttempt",
    "PersistCheckpoint",
    "PersistCheckpointId",
    "PersistOrders",
    "PersistResult",
    "Recover",
    "ReleaseSlots",
    "RequestSlots",
    "Send",
    "WakeAt",
]
