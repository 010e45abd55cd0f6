"""Events of the CheckpointCoordinator."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    CheckpointKind,
    CompletedCheckpoint,
    DeclineCheckpoint,
    VertexShape,
)

from lockgate_coordinator.checkpoint.failures import FailureReason
from lockgate_coordinator.checkpoint.final import Purpose

SubtaskKey = tuple[str, int]
"""Vertex id and subtask index: names a subtask within one attempt."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A subtask has made its part of a checkpoint durable. May arrive late, twice, or from an earlier attempt."""

    acknowledge: AcknowledgeCheckpoint


@dataclass(frozen=True, slots=True)
class Declined:
    """A subtask cannot take part in a checkpoint."""

    decline: DeclineCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointIdPersisted:
    """Answer to PersistCheckpointId: the counter stands at `checkpoint_id`, which may be used from now on."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CheckpointIdPersistFailed:
    """Answer to PersistCheckpointId: certainly not written. The id is skipped, never used."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointPersisted:
    """Answer to PersistCheckpoint: metadata file and ZooKeeper record exist, the checkpoint is completed.

    checkpoint: the record as it was written, with checksum, full size and inline metadata if small.
    """

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointPersistFailed:
    """Answer to PersistCheckpoint: the ZooKeeper record certainly does not exist and never will.

    An unknown outcome must be read back before this is reported. text: one sentence. reason: STORAGE_FAILED where the
    file could not be written, STORE_AWAY while ZooKeeper is not reachable.
    """

    checkpoint_id: int
    text: str
    reason: FailureReason = FailureReason.NOT_WRITTEN


@dataclass(frozen=True, slots=True)
class SavepointRequested:
    """A client wants a savepoint. request_id: chosen by the runtime, comes back in AnswerSavepoint exactly once.

    timeout_ms: counted from now, waiting in the queue and for the next attempt included; 0 means the job's checkpoint
    timeout.
    kind: CHECKPOINT for one that only has to be taken now and is subsumed like any other. ends_for: what the attempt
    ends for after it, so that no other checkpoint may follow; None when the attempt continues. may_overtake: a
    CHECKPOINT of a job in the mode UNALIGNED may hold records in flight.
    """

    request_id: str
    timeout_ms: int = 0
    kind: CheckpointKind = CheckpointKind.SAVEPOINT
    ends_for: Purpose | None = None
    may_overtake: bool = False


@dataclass(frozen=True, slots=True)
class DisposalBegun:
    """A client wants this savepoint deleted; it is not the newest snapshot. It answers no request any more.

    The job's result does not list it, whether the deletion succeeds or not: the clean-up deletes what remains of it.
    """

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class SavepointDisposed:
    """The record of this savepoint is deleted, because a client wanted it."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """ZooKeeper is unreachable, leadership is not lost yet: start nothing new. reason: "" while it is not known."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """ZooKeeper is reachable again and the session survived."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; answers a WakeAt. May arrive at any time, early and repeatedly."""


@dataclass(frozen=True, slots=True)
class AttemptRunning:
    """Every subtask of the attempt runs: checkpoints may begin. From the JobMaster only.

    vertices: the graph's shape in this attempt, empty when it is as at the start. stopped_with: id of the savepoint
    that it started from, when that is the one that a stop has led to; else 0. places: the task manager of slot i.
    is_adopted: it ran under earlier leaders, so that a checkpoint of theirs may be overdue. numbers: of the attempt in
    which the subtasks in slot i began, empty when it is this one.
    """

    attempt: AttemptId
    subtasks: frozenset[SubtaskKey]
    vertices: tuple[VertexShape, ...] = ()
    stopped_with: int = 0
    places: tuple[str, ...] = ()
    is_adopted: bool = False
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The attempt has ended: nothing of it may be acknowledged any more. From the JobMaster only.

    in_part: some of its subtasks run on, and have to know what becomes of its checkpoints.
    """

    reason: str
    in_part: bool = False


@dataclass(frozen=True, slots=True)
class NoFurtherAttempt:
    """The job ends: there will be no further attempt for savepoints. From the JobMaster only."""

    reason: str


@dataclass(frozen=True, slots=True)
class Draining:
    """The sources of the attempt stop reading: the terminal checkpoint follows, and none begins before it.

    From the JobMaster only. A checkpoint before it would hold windows fired by the end of some inputs, and sources that
    read on after a failure. Clients that wait for a savepoint get the terminal one.
    """


@dataclass(frozen=True, slots=True)
class InputExhausted:
    """Every subtask of the attempt is exhausted: the terminal checkpoint is wanted now. From the JobMaster only.

    is_savepoint: a client has requested it, so it is kept.
    """

    is_savepoint: bool = False

    @property
    def kind(self) -> CheckpointKind:
        """The kind of the terminal checkpoint."""
        return CheckpointKind.SAVEPOINT if self.is_savepoint else CheckpointKind.CHECKPOINT


@dataclass(frozen=True, slots=True)
class LastCheckpointDropped:
    """The checkpoint planned as the last of its attempt is not wanted as such: others may follow, or it need not begin.

    From the JobMaster only, which has answered its own request itself.
    """


CheckpointEvent = (
    Acknowledged
    | Declined
    | CheckpointIdPersisted
    | CheckpointIdPersistFailed
    | CheckpointPersisted
    | CheckpointPersistFailed
    | SavepointRequested
    | DisposalBegun
    | SavepointDisposed
    | Suspended
    | Resumed
    | Tick
    | AttemptRunning
    | AttemptEnded
    | NoFurtherAttempt
    | Draining
    | InputExhausted
    | LastCheckpointDropped
)
