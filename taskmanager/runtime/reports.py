"""What a subtask tells the leader of what its machine has decided."""

from __future__ import annotations

import logging

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    CheckpointCommitted,
    DeclineCause,
    DeclineCheckpoint,
    FirstRecord,
    SubtaskId,
    SubtaskReport,
)

from taskmanager.task import effects as do

log = logging.getLogger(__name__)
Report = AcknowledgeCheckpoint | DeclineCheckpoint | CheckpointCommitted | FirstRecord | SubtaskReport


def report_of(effect: do.Effect, subtask: SubtaskId, name: str) -> Report | None:
    """The message for the leader; None for what is not for it. name: of the subtask, in logs."""
    match effect:
        case do.Acknowledge(checkpoint_id, state, sync_us, async_ms, alignment_ms):
            return AcknowledgeCheckpoint(subtask, checkpoint_id, state, sync_us, async_ms, alignment_ms)
        case do.Decline(checkpoint_id, reason, is_storage):
            log.info("%s declines checkpoint %d: %s", name, checkpoint_id, reason)
            cause = DeclineCause.STORAGE_FAILED if is_storage else DeclineCause.DECLINE_CAUSE_UNSPECIFIED
            return DeclineCheckpoint(subtask, checkpoint_id, reason, cause)
        case do.ReportCommitted(checkpoint_id):
            return CheckpointCommitted(subtask, checkpoint_id)
        case do.ReportFirstRecord(unix_us):
            return FirstRecord(subtask, unix_us)
        case do.Report(phase, cause, error, place):
            log.info("%s: %s%s", name, phase.name, f" ({cause.name}: {error})" if error else "")
            return SubtaskReport(subtask, phase, cause, error, place)
    return None
