"""What a SubtaskMachine asks its loop to do, in the order given."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import Barrier, FailureCause, SubtaskPhase, SubtaskState


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Freeze the program's state now. Answer with SnapshotTaken or SnapshotFailed."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ForwardBarrier:
    """Send the barrier down every output channel."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class StartUpload:
    """Store the frozen state in the background. Answer with UploadDone or UploadFailed."""

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
    """Tell the leader that this subtask cannot take part in the checkpoint."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class StopAlignment:
    """Release the channels held for the checkpoint."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """The frozen state is not needed: do not start storing it."""

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


@dataclass(frozen=True, slots=True)
class ReportFirstRecord:
    """Tell the leader that this attempt's first rows have reached a sink."""

    unix_us: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the program and give the channels up. Answer with Closed."""


Effect = (
    TakeSnapshot
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
