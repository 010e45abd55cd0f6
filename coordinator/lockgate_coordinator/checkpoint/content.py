"""The stored form of a checkpoint: its metadata, and the record that points to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockgate_proto.messages import CheckpointMetadata, CheckpointOptions, CompletedCheckpoint, VertexShape

from lockgate_coordinator.checkpoint.handles import (
    completed_handles,
    diffs,
    is_incremental,
    size_bytes,
    written_bytes,
)
from lockgate_coordinator.checkpoint.pending import PendingCheckpoint

FORMAT_VERSION = 1
"""Of `_metadata`, as this version writes it."""

OLDEST_FORMAT = 1
"""It reads this one and those up to FORMAT_VERSION."""


@dataclass(frozen=True, slots=True)
class CheckpointSetting:
    """The settings of all checkpoints of one job under one leader.

    options: normalized. directory: URI under which chk-<id>/ are made. unix_offset_ms: wall minus monotonic clock.
    """

    job_key: str
    run_id: str
    token: int
    directory: str
    options: CheckpointOptions
    vertices: tuple[VertexShape, ...]
    unix_offset_ms: int = 0


def metadata_of(
    pending: PendingCheckpoint, setting: CheckpointSetting, bases: Sequence[CheckpointMetadata]
) -> CheckpointMetadata:
    """The content of `_metadata`. bases: snapshots that it may have taken bytes over from. Raises NothingToTakeOver."""
    return CheckpointMetadata(
        format_version=FORMAT_VERSION,
        job_key=setting.job_key,
        run_id=setting.run_id,
        checkpoint_id=pending.checkpoint_id,
        kind=pending.kind,
        token=setting.token,
        attempt=pending.attempt.attempt,
        triggered_unix_ms=pending.triggered_ms + setting.unix_offset_ms,
        completed_unix_ms=pending.collected_ms + setting.unix_offset_ms,
        vertices=setting.vertices,
        subtasks=completed_handles(pending.subtask_states(), bases),
        terminal=pending.terminal,
    )


def record_of(
    pending: PendingCheckpoint, metadata: CheckpointMetadata, setting: CheckpointSetting, request_ids: tuple[str, ...]
) -> CompletedCheckpoint:
    """The record without the runtime's fields: see PersistCheckpoint. request_ids: of the clients that it answers."""
    checkpoint_id, subtasks = pending.checkpoint_id, metadata.subtasks
    diff_values, diff_saved_bytes = diffs(subtasks, checkpoint_id)
    return CompletedCheckpoint(
        checkpoint_id=checkpoint_id,
        pointer=f"{setting.directory}/chk-{checkpoint_id}/_metadata",
        size_bytes=size_bytes(subtasks),
        token=setting.token,
        kind=pending.kind,
        triggered_unix_ms=metadata.triggered_unix_ms,
        duration_ms=pending.collected_ms - pending.triggered_ms,
        longest_sync_us=pending.longest_sync_us,
        longest_alignment_ms=pending.longest_alignment_ms,
        incremental=is_incremental(subtasks, checkpoint_id),
        written_bytes=written_bytes(subtasks, checkpoint_id),
        unaligned=pending.unaligned,
        channel_state_bytes=pending.channel_state_bytes,
        diff_values=diff_values,
        diff_saved_bytes=diff_saved_bytes,
        request_ids=request_ids,
    )
