"""The last commit of an attempt whose job ends: its sinks commit the newest completed checkpoint.

    a checkpoint is being written --settled--> announced --every sink has committed | deadline--> over

An attempt that is replaced does not need this: the next one commits the snapshot that it restores.
"""

from __future__ import annotations

from typing import assert_never

from lockgate_common.amounts import listed
from lockgate_proto.messages import CheckpointMetadata, NotifyCheckpointComplete

from lockgate_coordinator.graph.execution_graph import SubtaskKey
from lockgate_coordinator.job.attempt import Attempt, AttemptEvent, AttemptFailed
from lockgate_coordinator.job.effects import Emit, Send
from lockgate_coordinator.job.events import Gone, TaskManagerLost

COMMIT_TIMEOUT_MS = 5_000
"""How long an ending job waits for its sinks."""


class LastCommit:
    """The last commit of one deployed attempt."""

    def __init__(self, attempt: Attempt, failed: AttemptFailed | None, committed_id: int, now_ms: int) -> None:
        """failed: the failure that ends the job, None for a cancel; its subtask or task manager can commit nothing.

        committed_id: the checkpoint that every sink has committed in earlier attempts, 0 for none.
        """
        self._attempt = attempt
        self._committed_id = committed_id
        self._unable = {key for key in attempt.sinks if attempt.execution.is_lost(key)}
        self._snapshot: CheckpointMetadata | None = None
        self._is_settled = False
        self._is_cancel = failed is None
        self._deadline_ms = now_ms + COMMIT_TIMEOUT_MS
        if failed is not None:
            self._drop(failed)

    def handle(self, event: AttemptEvent, now_ms: int) -> list[Emit]:
        """Handles reports of the attempt's task managers: commits, and sinks that can commit nothing any more."""
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
        """Every outcome is known, and this is the newest completed checkpoint. The first call announces it."""
        if self._is_settled:
            return []
        self._is_settled, self._snapshot = True, newest
        if newest is None:
            return []
        body = NotifyCheckpointComplete(self._attempt.id, newest.checkpoint_id)
        names = sorted({self._place(key) for key in self._missing() if self._attempt.took(key, newest)})
        return self._attempt.to(names, body)

    def is_over(self, now_ms: int) -> bool:
        """True when no sink has anything to commit any more, or the deadline has passed."""
        if not self._attempt.sinks or now_ms >= self._deadline_ms:
            return True
        return self._is_settled and not self._awaited()

    def next_wake_ms(self) -> int:
        """When is_over may have changed without an event."""
        return self._deadline_ms

    def complaint(self) -> str:
        """The output that may be uncommitted, as a sentence; "" when all is committed."""
        missing = [f"{key[0]}-{key[1]} on {self._place(key)}" for key in self._missing()]
        if not self._attempt.sinks or (self._is_settled and not missing):
            return ""
        if self._snapshot is not None and self._snapshot.run_id != self._attempt.id.run_id:
            return ""  # the snapshot of another job, whose result reports what it has not committed
        if self._snapshot is None:
            return "A checkpoint was being written when the job ended; its output may be uncommitted."
        return (
            f"Checkpoint {self._snapshot.checkpoint_id} may be only partially committed: {listed(missing)} had not "
            f"committed it when the job ended."
        )

    def _missing(self) -> tuple[SubtaskKey, ...]:
        """Sinks that are not known to have committed the snapshot."""
        newest = self._snapshot
        if newest is None or newest.checkpoint_id == self._committed_id:
            return ()
        return self._attempt.uncommitted(newest)

    def _awaited(self) -> tuple[SubtaskKey, ...]:
        """Those of them that may still commit it. If a restore failed, the others are not waited for."""
        newest = self._snapshot
        if newest is None:
            return ()
        return tuple(
            key
            for key in self._missing()
            if key not in self._unable and (self._is_cancel or self._attempt.took(key, newest))
        )

    def _drop(self, failed: AttemptFailed) -> None:
        self._unable.update(
            key for key in self._attempt.sinks if key == failed.subtask or self._place(key) == failed.lost
        )

    def _place(self, key: SubtaskKey) -> str:
        return self._attempt.execution.task_manager_of(key)
