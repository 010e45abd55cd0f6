"""Messages in a subtask's mailbox, and the messages to the leader that its machine's effects stand for."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import assert_never

from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    CheckpointCommitted,
    DeclineCause,
    DeclineCheckpoint,
    DrainSources,
    FirstRecord,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    SubtaskId,
    SubtaskReport,
    TriggerCheckpoint,
)

from lockgate_taskmanager.barrier.events import BarrierOvertakes
from lockgate_taskmanager.task import effects as do

log = logging.getLogger(__name__)
_trouble = RecurringLog()  # while a storage is away, every subtask declines every checkpoint
Report = AcknowledgeCheckpoint | DeclineCheckpoint | CheckpointCommitted | FirstRecord | SubtaskReport


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A channel of this subtask broke."""

    reason: str


Message = (
    TriggerCheckpoint
    | AssignSplits
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | BarrierOvertakes
    | DrainSources
    | PeerLost
)


def report_of(effect: do.ForLeader, subtask: SubtaskId, name: str) -> Report:
    """The message for the leader. name: of the subtask, in logs."""
    match effect:
        case do.Acknowledge(checkpoint_id, state, sync_us, async_ms, alignment_ms):
            return AcknowledgeCheckpoint(subtask, checkpoint_id, state, sync_us, async_ms, alignment_ms)
        case do.Decline(checkpoint_id, reason, is_storage):
            topic = f"{subtask.attempt.job_key if subtask.attempt else name}, {is_storage}"
            fields = {"checkpoint": checkpoint_id}
            _trouble.info(log, topic, "%s declines checkpoint %d: %s", name, checkpoint_id, reason, extra=fields)
            cause = DeclineCause.STORAGE_FAILED if is_storage else DeclineCause.DECLINE_CAUSE_UNSPECIFIED
            return DeclineCheckpoint(subtask, checkpoint_id, reason, cause)
        case do.ReportCommitted(checkpoint_id, has_output):
            return CheckpointCommitted(subtask, checkpoint_id, has_output)
        case do.ReportFirstRecord(unix_us):
            return FirstRecord(subtask, unix_us)
        case do.Report(phase, cause, error, place):
            log.info("%s: %s%s", name, phase.name, f" ({cause.name}: {error})" if error else "")
            return SubtaskReport(subtask, phase, cause, error, place)
        case _:
            assert_never(effect)
