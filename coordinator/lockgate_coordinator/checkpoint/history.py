"""What became of the newest checkpoints of one job under one leader. Pure, bounded, and never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lockgate_proto.messages import AbortReason, CheckpointOutcome, CompletedCheckpoint

from lockgate_coordinator.checkpoint.content import CheckpointSetting
from lockgate_coordinator.checkpoint.failures import FailureReason
from lockgate_coordinator.checkpoint.pending import PendingCheckpoint

MOST_OUTCOMES = 200
"""Completed ones, and as many aborted ones: while a storage is away, aborted ones do not push the others out."""

_MOST_TEXT = 2_000


class CheckpointHistory:
    """The newest completed ones, and the newest aborted ones."""

    def __init__(self) -> None:
        self._completed: dict[int, CheckpointOutcome] = {}
        self._aborted: dict[int, CheckpointOutcome] = {}

    def completed(self, pending: PendingCheckpoint, record: CompletedCheckpoint) -> None:
        """A checkpoint is durable. record: `metadata` empty."""
        count = len(pending.details)
        outcome = CheckpointOutcome(record, attempt=pending.attempt.attempt, acknowledged=count, subtasks=count)
        _keep(self._completed, pending.checkpoint_id, outcome)

    def aborted(
        self, pending: PendingCheckpoint, reason: FailureReason, text: str, setting: CheckpointSetting, now_ms: int
    ) -> None:
        """A checkpoint that was triggered will never complete. text: why, for people."""
        details = pending.details
        checkpoint = CompletedCheckpoint(
            checkpoint_id=pending.checkpoint_id,
            kind=pending.kind,
            token=setting.token,
            triggered_unix_ms=pending.triggered_ms + setting.unix_offset_ms,
            duration_ms=now_ms - pending.triggered_ms,
            size_bytes=details.size_bytes,
            written_bytes=details.written_bytes,
            longest_sync_us=pending.longest_sync_us,
            longest_alignment_ms=pending.longest_alignment_ms,
            unaligned=pending.unaligned,
        )
        attempt, expected = pending.attempt.attempt, len(pending.expected)
        why = AbortReason[f"ABORT_{reason.name}"]
        outcome = CheckpointOutcome(checkpoint, why, text[:_MOST_TEXT], attempt, len(details), expected)
        _keep(self._aborted, pending.checkpoint_id, outcome)

    def outcomes(self, retained: Sequence[CompletedCheckpoint]) -> tuple[CheckpointOutcome, ...]:
        """All that is known, by id, newest first. retained: those that exist, also of earlier leaders."""
        found = {**self._completed, **self._aborted}
        for checkpoint in retained:
            known = found.get(checkpoint.checkpoint_id) or CheckpointOutcome(checkpoint)
            found[checkpoint.checkpoint_id] = replace(known, retained=True)
        return tuple(found[number] for number in sorted(found, reverse=True))


def _keep(outcomes: dict[int, CheckpointOutcome], number: int, outcome: CheckpointOutcome) -> None:
    outcomes[number] = outcome
    if len(outcomes) > MOST_OUTCOMES:
        del outcomes[next(iter(outcomes))]  # ids are used once, so the first one is the oldest
