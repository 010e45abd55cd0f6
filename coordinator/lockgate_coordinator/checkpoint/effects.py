"""Effects of the CheckpointCoordinator. Their order within one list is part of the contract."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockgate_proto.messages import AttemptId, CheckpointKind, CheckpointMetadata, CompletedCheckpoint

from lockgate_coordinator.checkpoint.details import SnapshotDetails
from lockgate_coordinator.checkpoint.failures import FailureReason


@dataclass(frozen=True, slots=True)
class PersistCheckpointId:
    """Set the job's checkpoint counter (fenced). Answer: CheckpointIdPersisted or CheckpointIdPersistFailed."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistCheckpoint:
    """Write the metadata file, then create the ZooKeeper record (fenced), in this order.

    metadata: the content of `_metadata`, complete.
    record: the ZooKeeper record with `pointer` set and `size_bytes` = the state's bytes; the runtime sets
    `checksum`, adds the metadata's length to `size_bytes`, and puts small metadata inline.
    Answer: exactly one of CheckpointPersisted and CheckpointPersistFailed, once the outcome is known.
    """

    metadata: CheckpointMetadata
    record: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """Delete a subsumed checkpoint: the ZooKeeper record first (fenced), and only when that is done its files.

    Its files are its folder and the shared files that no kept checkpoint refers to: `free`, names in the run's `shared`
    folder. No answer. A failure is logged; a record that remains is discarded again after the next recovery.
    """

    checkpoint: CompletedCheckpoint
    free: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscardPending:
    """Delete what was written for a checkpoint that never completed. No answer; failures are logged."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class AnswerSavepoint:
    """Answer a SavepointRequested: `savepoint` (metadata empty) when it completed, else `error`, a sentence.

    busy: nothing was begun, the error is temporary, and the client may try again.
    """

    request_id: str
    savepoint: CompletedCheckpoint | None = None
    error: str = ""
    busy: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointTriggered:
    """To the JobMaster: send TriggerCheckpoint to the sources of `attempt`, an unaligned one to every subtask.

    An unaligned one may follow an aligned one of the same id, which has taken too long.
    """

    attempt: AttemptId
    checkpoint_id: int
    kind: CheckpointKind
    terminal: bool
    triggered_unix_ms: int
    completed_id: int = 0
    unaligned: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """To the JobMaster: the checkpoint is durable; notify its attempt if that still lives (`attempt_alive`)."""

    attempt: AttemptId
    checkpoint: CompletedCheckpoint
    metadata: CheckpointMetadata
    attempt_alive: bool
    details: SnapshotDetails | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """To the JobMaster: the checkpoint will never complete; notify its attempt if that still lives.

    text: a description for people.
    """

    attempt: AttemptId
    checkpoint_id: int
    reason: FailureReason
    text: str
    attempt_alive: bool
    details: SnapshotDetails | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TooManyFailures:
    """To the JobMaster: more consecutive checkpoints have failed than the job tolerates; fail the attempt."""

    reason: str


CheckpointEffect = (
    PersistCheckpointId
    | PersistCheckpoint
    | DiscardCheckpoint
    | DiscardPending
    | AnswerSavepoint
    | CheckpointTriggered
    | CheckpointCompleted
    | CheckpointAborted
    | TooManyFailures
)
