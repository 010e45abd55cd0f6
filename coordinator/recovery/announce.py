"""What the task managers and the watchers are told of a checkpoint."""

from __future__ import annotations

from lockgate_proto.messages import (
    JobEvent,
    JobEventKind,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

from coordinator.checkpoint.effects import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from coordinator.recovery.attempt import Attempt
from coordinator.recovery.effects import Effect, Emit, Send

Announcement = CheckpointTriggered | CheckpointCompleted | CheckpointAborted


def announce(what: Announcement, attempt: Attempt | None, token: int) -> list[Effect]:
    """Messages to the attempt if it still lives, then the event. attempt: the current one."""
    alive = attempt if attempt is not None and attempt.id == what.attempt else None
    if isinstance(what, CheckpointTriggered):
        trigger = TriggerCheckpoint(
            attempt=what.attempt,
            checkpoint_id=what.checkpoint_id,
            kind=what.kind,
            terminal=what.terminal,
            triggered_unix_ms=what.triggered_unix_ms,
            completed_id=what.completed_id,
            unaligned=what.unaligned,
        )
        if alive is None:
            return []
        if what.unaligned:
            return list(alive.to_all(trigger))
        return [Send(name, trigger) for name in alive.execution.source_task_managers()]
    body: NotifyCheckpointComplete | NotifyCheckpointAborted
    if isinstance(what, CheckpointCompleted):
        checkpoint_id = what.checkpoint.checkpoint_id
        body = NotifyCheckpointComplete(attempt=what.attempt, checkpoint_id=checkpoint_id)
        kind = JobEventKind.CHECKPOINT_COMPLETED
        text = f"{what.checkpoint.size_bytes} bytes in {what.checkpoint.duration_ms} ms"
    else:
        checkpoint_id = what.checkpoint_id
        body = NotifyCheckpointAborted(attempt=what.attempt, checkpoint_id=checkpoint_id, reason=what.reason)
        kind = JobEventKind.CHECKPOINT_ABORTED
        text = what.reason
    sends: list[Effect] = list(alive.to_all(body)) if alive is not None and what.attempt_alive else []
    number = what.attempt.attempt
    return [*sends, Emit(JobEvent(kind=kind, attempt=number, checkpoint_id=checkpoint_id, token=token, text=text))]
