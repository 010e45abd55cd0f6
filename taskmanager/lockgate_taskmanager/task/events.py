"""Events of a subtask.

Those that name an attempt come from the leader and may be late, duplicated or for another attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import AttemptId, Barrier, FailureCause, FailurePlace, SubtaskState

from lockgate_taskmanager.barrier.events import Aligned, AlignmentAborted, Overtaken


@dataclass(frozen=True, slots=True)
class Started:
    """The subtask's thread has begun to build and open the program."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The program is open: state restored, restored sink transactions committed."""


@dataclass(frozen=True, slots=True)
class ElementProcessed:
    """A prologue or a first element has passed through the program."""


@dataclass(frozen=True, slots=True)
class SinkReached:
    """A batch with rows has reached a sink operator. Wall clock, microseconds."""

    unix_us: int


@dataclass(frozen=True, slots=True)
class TriggerReceived:
    """The leader starts a checkpoint at this source."""

    attempt: AttemptId | None
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The state is frozen; the stream was held for `sync_us`."""

    checkpoint_id: int
    sync_us: int


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """The state could not be frozen; the program continues."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class UploadDone:
    """The frozen state is durable."""

    checkpoint_id: int
    state: SubtaskState
    async_ms: int


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """The frozen state could not be stored. is_storage: the storage is the cause, not the state."""

    checkpoint_id: int
    reason: str
    is_storage: bool = False


@dataclass(frozen=True, slots=True)
class CompleteReceived:
    """The leader has completed the checkpoint."""

    attempt: AttemptId | None
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class AbortReceived:
    """The leader has aborted the checkpoint; and_earlier: with all earlier ones that are not completed."""

    attempt: AttemptId | None
    checkpoint_id: int
    and_earlier: bool = False


@dataclass(frozen=True, slots=True)
class CommitDone:
    """Everything sealed up to the checkpoint is visible. has_output: there was any of it."""

    checkpoint_id: int
    has_output: bool = False


@dataclass(frozen=True, slots=True)
class InputExhausted:
    """No more records will arrive: every split is read, or every input channel has ended."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """The program has emitted what it had held back."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The attempt is to be cancelled."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The subtask cannot continue."""

    cause: FailureCause
    error: str
    place: FailurePlace | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """The program and the channels are closed."""


Event = (
    Started
    | Opened
    | ElementProcessed
    | SinkReached
    | TriggerReceived
    | Aligned
    | Overtaken
    | AlignmentAborted
    | SnapshotTaken
    | SnapshotFailed
    | UploadDone
    | UploadFailed
    | CompleteReceived
    | AbortReceived
    | CommitDone
    | InputExhausted
    | Flushed
    | CancelRequested
    | Failed
    | Closed
)
