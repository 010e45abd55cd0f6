"""Effects of a JobMaster. The runtime carries them out in the order of the list.

Persist* of one job run on that job's one ordered worker, and so does the part of Discard* that deletes a record; their
answers come back as events. Files are deleted on another worker, behind their records, and CleanUp comes behind them.
Nothing may be reordered across a Send that follows a Persist answer: the JobMaster waits for answers itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import (
    AssignSplits,
    AttemptRecord,
    CancelAttempt,
    CompletedCheckpoint,
    Deploy,
    DiscoverSplits,
    DrainSources,
    JobEvent,
    JobOrders,
    JobResult,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    PrepareJob,
    TriggerCheckpoint,
    VertexParallelism,
)

from lockgate_coordinator.checkpoint.effects import (
    AnswerSavepoint,
    DiscardCheckpoint,
    DiscardPending,
    PersistCheckpoint,
    PersistCheckpointId,
)

ControlBody = (
    Deploy
    | CancelAttempt
    | TriggerCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | DiscoverSplits
    | AssignSplits
    | PrepareJob
    | DrainSources
)


@dataclass(frozen=True, slots=True)
class Recover:
    """Read the job's records and snapshot again, after a retryable RecoveryFailed. Answer: as at the start."""


@dataclass(frozen=True, slots=True)
class RequestSlots:
    """Ask the SlotPool for `count` slots; replaces whatever the job holds or has asked for.

    request: rises; comes back in SlotsOffered. preferred: the task manager wanted for slot i,
    best effort, "" where there is none.
    grace_ms: wait so long for preferred task managers that are not registered yet, then take what is there.
    avoided: task managers that get no slot but those that prefer them, as long as others have any.
    """

    request: int
    count: int
    preferred: tuple[str, ...] = ()
    grace_ms: int = 0
    avoided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseSlots:
    """Release every slot of the job and withdraw its request."""


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

    after: attempts with a higher number are at this parallelism, 0 when nothing has to be restarted for it.
    busy: the error is one of the moment, and the client may simply ask again.
    """

    request_id: str
    parallelism: tuple[VertexParallelism, ...] = ()
    error: str = ""
    after: int = 0
    busy: bool = False


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The job has ended: delete its records (fenced; the result becomes clean), then its checkpoint directory.

    retained: checkpoints whose folders stay, the same as JobResult.retained. A leader that finds a dirty result does
    the same from the result alone. The last effect of a JobMaster; it may be dropped now.
    """

    retained: tuple[CompletedCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Send one message to a task manager; the runtime stamps the token. In order per task manager.

    If the task manager is not connected the runtime answers TaskManagerLost.
    """

    task_manager_id: str
    body: ControlBody


@dataclass(frozen=True, slots=True)
class Emit:
    """Notify the watchers. The runtime sets `unix_us` where it is 0."""

    event: JobEvent


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this monotonic time. Replaces the wake-up asked for before."""

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
