"""Messages about checkpoints to task managers and watchers."""

from __future__ import annotations

from typing import assert_never

from lockgate_common.amounts import size_text
from lockgate_proto.messages import (
    JobEvent,
    JobEventKind,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

from lockgate_coordinator.checkpoint.effects import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from lockgate_coordinator.job.attempt import Attempt
from lockgate_coordinator.job.effects import Effect, Emit, Send

Announcement = CheckpointTriggered | CheckpointCompleted | CheckpointAborted


def announce(what: Announcement, attempt: Attempt | None, token: int) -> list[Effect]:
    """Messages to the attempt if it still lives, then the event. attempt: the current one."""
    alive = attempt if attempt is not None and attempt.id == what.attempt else None
    body: NotifyCheckpointComplete | NotifyCheckpointAborted
    reason, took_ms = None, None
    match what:
        case CheckpointTriggered():
            return [*_trigger(what, alive)] if alive is not None else []
        case CheckpointCompleted(checkpoint=checkpoint):
            checkpoint_id = checkpoint.checkpoint_id
            body = NotifyCheckpointComplete(attempt=what.attempt, checkpoint_id=checkpoint_id)
            kind = JobEventKind.CHECKPOINT_COMPLETED
            took_ms = checkpoint.duration_ms
            text = f"{size_text(checkpoint.size_bytes)} in {took_ms} ms"
        case CheckpointAborted(checkpoint_id=checkpoint_id, text=text):
            reason = what.reason
            body = NotifyCheckpointAborted(attempt=what.attempt, checkpoint_id=checkpoint_id, reason=text)
            kind = JobEventKind.CHECKPOINT_ABORTED
        case _:
            assert_never(what)
    sends: list[Effect] = list(alive.to_all(body)) if alive is not None and what.attempt_alive else []
    number = what.attempt.attempt
    event = JobEvent(kind=kind, attempt=number, checkpoint_id=checkpoint_id, token=token, text=text)
    return [*sends, Emit(event, reason, took_ms, what.details)]


def _trigger(what: CheckpointTriggered, attempt: Attempt) -> list[Send]:
    """To the sources; an unaligned one to every subtask."""
    body = TriggerCheckpoint(
        attempt=what.attempt,
        checkpoint_id=what.checkpoint_id,
        kind=what.kind,
        terminal=what.terminal,
        triggered_unix_ms=what.triggered_unix_ms,
        completed_id=what.completed_id,
        unaligned=what.unaligned,
    )
    if what.unaligned:
        return attempt.to_all(body)
    return attempt.to_sources(body)
