"""Effects of a SubtaskMachine, which its loop carries out in the order given."""

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
    """Record what is queued and what arrives on each input channel until its barrier; except on those in
    `delivered`.
    """

    checkpoint_id: int
    delivered: frozenset[int]


@dataclass(frozen=True, slots=True)
class ForwardBarrier:
    """Send the barrier on every output channel; an unaligned one overtakes queued elements, which are copied."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class StartUpload:
    """Store the frozen state in the background, and the recorded channel state once it is complete.

    Answer with UploadDone or UploadFailed.
    """

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Report to the leader that this subtask's part of the checkpoint is durable."""

    checkpoint_id: int
    state: SubtaskState
    sync_us: int
    async_ms: int
    alignment_ms: int


@dataclass(frozen=True, slots=True)
class Decline:
    """Report to the leader that this subtask cannot take part in the checkpoint.

    is_storage: the storage is the cause.
    """

    checkpoint_id: int
    reason: str
    is_storage: bool = False


@dataclass(frozen=True, slots=True)
class StopAlignment:
    """Release the channels held for the checkpoint; and_earlier: or for an earlier one."""

    checkpoint_id: int
    and_earlier: bool = False


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """The frozen state and the recorded channel state are not needed: do not start storing them."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Make everything sealed up to the checkpoint visible. Answer with CommitDone or Failed."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ReportCommitted:
    """Report to the leader that the checkpoint is committed here. has_output: records became visible."""

    checkpoint_id: int
    has_output: bool = False


@dataclass(frozen=True, slots=True)
class Flush:
    """Let the program emit what it has held back. Answer with Flushed or Failed."""


@dataclass(frozen=True, slots=True)
class ForwardEnd:
    """Send end of input on every output channel."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the subtask's phase to the leader."""

    phase: SubtaskPhase
    cause: FailureCause = FailureCause.FAILURE_CAUSE_UNSPECIFIED
    error: str = ""
    place: FailurePlace | None = None


@dataclass(frozen=True, slots=True)
class ReportFirstRecord:
    """Report to the leader that this attempt's first rows have reached a sink."""

    unix_us: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the program and the channels. Answer with Closed."""


ForLeader = Acknowledge | Decline | ReportCommitted | ReportFirstRecord | Report
"""What becomes a message to the leader."""

Effect = (
    TakeSnapshot
    | RecordChannels
    | ForwardBarrier
    | StartUpload
    | StopAlignment
    | DropSnapshot
    | Commit
    | Flush
    | ForwardEnd
    | Close
    | ForLeader
)
