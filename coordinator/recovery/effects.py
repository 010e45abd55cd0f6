"""Everything a JobMaster can want done. The runtime carries them out in the order of the list.

Persist* and Discard* and CleanUp of one job run on that job's one ordered worker; their answers come back as events.
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
    JobEvent,
    JobResult,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    PrepareJob,
    TriggerCheckpoint,
)

from coordinator.checkpoint.effects import (
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
    """

    request: int
    count: int
    preferred: tuple[str, ...] = ()
    grace_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseSlots:
    """Give back every slot of the job and withdraw its request."""


@dataclass(frozen=True, slots=True)
class PersistAttempt:
    """Write the attempt record (fenced). Answer: AttemptPersisted or PersistFailed(ATTEMPT)."""

    record: AttemptRecord


@dataclass(frozen=True, slots=True)
class PersistResult:
    """Write the terminal result (fenced, dirty). Answer: ResultPersisted or PersistFailed(RESULT)."""

    result: JobResult


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
    """Tell the watchers. The runtime sets `unix_us` where it is 0."""

    event: JobEvent


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this monotonic time. Replaces the wake-up asked for before."""

    at_ms: int


Effect = (
    Recover
    | RequestSlots
    | ReleaseSlots
    | PersistAttempt
    | PersistCheckpointId
    | PersistCheckpoint
    | PersistResult
    | DiscardCheckpoint
    | DiscardPending
    | CleanUp
    | Send
    | Emit
    | AnswerSavepoint
    | WakeAt
)

__all__ = [
    "AnswerSavepoint",
    "CleanUp",
    "ControlBody",
    "DiscardCheckpoint",
    "DiscardPending",
    "Effect",
    "Emit",
    "PersistAttempt",
    "PersistCheckpoint",
    "PersistCheckpointId",
    "PersistResult",
    "Recover",
    "ReleaseSlots",
    "RequestSlots",
    "Send",
    "WakeAt",
]
