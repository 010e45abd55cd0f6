"""What an attempt still has to show when its job ends for good: the output of the newest checkpoint.

    waiting for a checkpoint that is being written --settled--> announced --every sink has shown it | deadline--> over

An attempt that is replaced needs none of this: the next one commits again what it restores.
"""

from __future__ import annotations

from typing import assert_never

from lockgate_proto.messages import CheckpointMetadata, NotifyCheckpointComplete

from lockgate_coordinator.graph.execution_graph import SubtaskKey
from lockgate_coordinator.job.attempt import Attempt, AttemptEvent, AttemptFailed
from lockgate_coordinator.job.effects import Emit, Send
from lockgate_coordinator.job.events import Gone, TaskManagerLost

COMMIT_TIMEOUT_MS = 5_000
"""A job that ends does not wait longer for its sinks."""


class LastCommit:
    """Of one attempt that was deployed."""

    def __init__(self, attempt: Attempt, failed: AttemptFailed | None, committed_id: int, now_ms: int) -> None:
        """failed: what the job ends by, None for a cancel; its subtask or task manager can show nothing more.

        shown_id: the checkpoint that every sink has shown in attempts before, 0 for none.
        """
        self._attempt = attempt
        self._committed_id = committed_id
        self._unable: set[SubtaskKey] = set()
        self._snapshot: CheckpointMetadata | None = None
        self._is_settled = False
        self._is_cancel = failed is None
        self._deadline_ms = now_ms + COMMIT_TIMEOUT_MS
        if failed is not None:
            self._drop(failed)

    def handle(self, event: AttemptEvent, now_ms: int) -> list[Emit]:
        """Takes what the attempt's task managers say; all that counts is what is shown, and who cannot any more."""
        effects: list[Emit] = []
        for effect in self._attempt.handle(event, now_ms):
            match effect:
                case AttemptFailed():
                    self._drop(effect)
                case Emit():
                    effects.append(effect)
                case Send():
                    pass
                case _:
                    assert_never(effect)
        if isinstance(event, TaskManagerLost | Gone):
            self._unable.update(key for key in self._attempt.sinks if self._place(key) == event.task_manager_id)
        return effects

    def settled(self, newest: CheckpointMetadata | None) -> list[Send]:
        """No checkpoint is in doubt any more, and this is the newest completed one. The first call announces it."""
        if self._is_settled:
            return []
        self._is_settled, self._snapshot = True, newest
        if newest is None or not self._attempt.took(newest):
            return []
        body = NotifyCheckpointComplete(self._attempt.id, newest.checkpoint_id)
        return [Send(name, body) for name in sorted({self._place(key) for key in self._missing()})]

    def is_over(self, now_ms: int) -> bool:
        """True when nobody has anything to show any more, or too late."""
        if not self._attempt.sinks or now_ms >= self._deadline_ms:
            return True
        return self._is_settled and not self._awaited()

    def next_wake_ms(self) -> int:
        """When is_over may have changed without an event."""
        return self._deadline_ms

    def complaint(self) -> str:
        """What may not be shown, as a sentence; "" when all of it is."""
        missing = [f"{key[0]}-{key[1]} on {self._place(key)}" for key in self._missing()]
        if not self._attempt.sinks or (self._is_settled and not missing):
            return ""
        if self._snapshot is not None and self._snapshot.run_id != self._attempt.id.run_id:
            return ""  # what it was to start from: the job that has taken it has shown it, or its result says what not
        if self._snapshot is None:
            return "A checkpoint was being written when the job ended; what it holds may not be shown."
        who = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        return (
            f"Checkpoint {self._snapshot.checkpoint_id} may be only partially committed: {who} had not "
            f"committed it when the job ended."
        )

    def _missing(self) -> tuple[SubtaskKey, ...]:
        """Sinks that are not known to have shown the snapshot."""
        newest = self._snapshot
        if newest is None or newest.checkpoint_id == self._committed_id:
            return ()
        return self._attempt.uncommitted(newest)

    def _awaited(self) -> tuple[SubtaskKey, ...]:
        """Of those, the ones that may show it yet. Where a restore fails, the others need not be waited for."""
        newest = self._snapshot
        if newest is None or not (self._is_cancel or self._attempt.took(newest)):
            return ()
        return tuple(key for key in self._missing() if key not in self._unable)

    def _drop(self, failed: AttemptFailed) -> None:
        self._unable.update(
            key for key in self._attempt.sinks if key == failed.subtask or self._place(key) == failed.lost
        )

    def _place(self, key: SubtaskKey) -> str:
        return self._attempt.execution.task_manager_of(key)
