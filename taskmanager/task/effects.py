"""What a SubtaskMachine asks its loop to do, in the order given."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import Barrier, FailureCause, FailurePlace, SubtaskPhase, SubtaskState


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Freeze the program's state now. Answer with SnapshotTaken or SnapshotFailed.

    base_id, is_savepoint: see SnapshotOrder.
    """

    checkpoint_id: int
    base_id: int = 0
    is_savepoint: bool = False


@dataclass(frozen=True, slots=True)
class RecordChannels:
    """Keep what is queued and what comes on each input channel until its barrier; not on those in `delivered`."""

    checkpoint_id: int
    delivered: frozenset[int]


@dataclass(frozen=True, slots=True)
class ForwardBarrier:
    """Send the barrier down every output channel; an unaligned one overtakes what waits there and keeps a copy."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class StartUpload:
    """Store the frozen state in the background, and what is being recorded once it is complete.

    Answer with UploadDone or UploadFailed.
    """

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell the leader that this subtask's part of the checkpoint is durable."""

    checkpoint_id: int
    state: SubtaskState
    sync_us: int
    async_ms: int
    alignment_ms: int


@dataclass(frozen=True, slots=True)
class Decline:
    """Tell the leader that this subtask cannot take part in the checkpoint. is_storage: the storage keeps it."""

    checkpoint_id: int
    reason: str
    is_storage: bool = False


@dataclass(frozen=True, slots=True)
class StopAlignment:
    """Release the channels held for the checkpoint."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """The frozen state and what is being recorded are not needed: do not start storing them."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Make everything sealed up to the checkpoint visible. Answer with CommitDone or Failed."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ReportCommitted:
    """Tell the leader that the checkpoint is visible here."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Flush:
    """Let the program emit what it kept back. Answer with Flushed or Failed."""


@dataclass(frozen=True, slots=True)
class ForwardEnd:
    """Send end of input down every output channel."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the leader the subtask's phase."""

    phase: SubtaskPhase
    cause: FailureCause = FailureCause.FAILURE_CAUSE_UNSPECIFIED
    error: str = ""
    place: FailurePlace | None = None


@dataclass(frozen=True, slots=True)
class ReportFirstRecord:
    """Tell the leader that this attempt's first rows have reached a sink."""

    unix_us: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the program and give the channels up. Answer with Closed."""


Effect = (
    TakeSnapshot
    | RecordChannels
    | ForwardBarrier
    | StartUpload
    | Acknowledge
    | Decline
    | StopAlignment
    | DropSnapshot
    | Commit
    | ReportCommitted
    | Flush
    | ForwardEnd
    | Report
    | ReportFirstRecord
    | Close
)
