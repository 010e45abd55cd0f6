"""When a checkpoint begins, when it is complete, when it is given up.

    idle --due | savepoint | terminal--> one PendingCheckpoint (see pending.py) --completed | aborted--> idle

One checkpoint at a time. Savepoint requests queue. An attempt that ends takes its pending checkpoint with it, except
one whose record is being written: that one is waited for, because it may turn out to be completed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lockgate_proto.messages import (
    AttemptId,
    CheckpointKind,
    CheckpointMetadata,
    CheckpointOptions,
    CompletedCheckpoint,
    VertexShape,
)

from coordinator.checkpoint.completed import CompletedCheckpoints
from coordinator.checkpoint.effects import (
    AnswerSavepoint,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointEffect,
    CheckpointTriggered,
    DiscardCheckpoint,
    DiscardPending,
    PersistCheckpoint,
    PersistCheckpointId,
    TooManyFailures,
)
from coordinator.checkpoint.events import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    CheckpointEvent,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    CheckpointPersisted,
    CheckpointPersistFailed,
    Declined,
    InputExhausted,
    Resumed,
    SavepointRequested,
    SubtaskKey,
    Suspended,
)
from coordinator.checkpoint.pending import PendingCheckpoint, PendingState

FORMAT_VERSION = 1
MAX_QUEUED_SAVEPOINTS = 16
_RETRY_MS = 1_000


@dataclass(frozen=True, slots=True)
class CheckpointSetting:
    """What all checkpoints of one job under one leader have in common.

    options: normalized. directory: URI under which chk-<id>/ are made. unix_offset_ms: wall minus monotonic clock.
    """

    job_key: str
    run_id: str
    token: int
    directory: str
    options: CheckpointOptions
    vertices: tuple[VertexShape, ...]
    unix_offset_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Savepoint:
    request_id: str
    deadline_ms: int


class CheckpointCoordinator:
    """All checkpoints of one job under one leader."""

    def __init__(self, setting: CheckpointSetting, completed: CompletedCheckpoints, next_checkpoint_id: int) -> None:
        """next_checkpoint_id: above every id that was ever used for this job or for what it starts from."""
        self.completed = completed
        self.completed_count = 0
        self.aborted_count = 0
        self._setting = setting
        self._next_id = next_checkpoint_id
        self._pending: PendingCheckpoint | None = None
        self._savepoints: deque[_Savepoint] = deque()
        self._attempt: AttemptId | None = None
        self._subtasks: frozenset[SubtaskKey] = frozenset()
        self._suspended = False
        self._exhausted = False
        self._terminal_id = 0
        self._failures = 0
        self._due_ms = 0
        self._not_before_ms = 0

    @property
    def settling(self) -> bool:
        """True while it is not known whether a checkpoint is completed: nothing may be restored meanwhile."""
        return self._pending is not None and self._pending.state is PendingState.PERSISTING

    @property
    def terminal_id(self) -> int:
        """Id of the current attempt's completed terminal checkpoint, 0 when there is none yet."""
        return self._terminal_id

    def handle(self, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:
        """The one entrance."""
        effects = self._react(event, now_ms)
        effects += self._expire(now_ms)
        effects += self._persist(now_ms)
        effects += self._begin(now_ms)
        return effects

    def next_wake_ms(self) -> int | None:
        """When a Tick is wanted, None when only events can change anything."""
        times = [one.deadline_ms for one in self._savepoints]
        if self._pending is not None and self._pending.deadline_ms is not None and self._may_expire(self._pending):
            times.append(self._pending.deadline_ms)
        if self._pending is None and self._attempt is not None and not self._suspended and not self._terminal_id:
            times.append(max(self._due_ms, self._not_before_ms))
        return min(times, default=None)

    def _react(self, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
        if isinstance(event, Acknowledged):
            if self._pending is not None:
                self._pending.acknowledge(event.acknowledge, now_ms)
        elif isinstance(event, Declined):
            effects = self._declined(event, now_ms)
        elif isinstance(event, (CheckpointIdPersisted, CheckpointIdPersistFailed)):
            effects = self._reserved(event, now_ms)
        elif isinstance(event, (CheckpointPersisted, CheckpointPersistFailed)):
            effects = self._settled(event, now_ms)
        elif isinstance(event, SavepointRequested):
            effects = self._savepoint(event, now_ms)
        elif isinstance(event, AttemptRunning):
            self._started(event, now_ms)
        elif isinstance(event, AttemptEnded):
            effects = self._ended(event.reason, now_ms)
        elif isinstance(event, InputExhausted):
            self._exhausted = True
            self._due_ms = self._not_before_ms = now_ms
        elif isinstance(event, (Suspended, Resumed)):
            self._suspended = isinstance(event, Suspended)
        return effects

    def _started(self, event: AttemptRunning, now_ms: int) -> None:
        self._attempt = event.attempt
        self._subtasks = event.subtasks
        self._exhausted = False
        self._terminal_id = 0
        self._failures = 0
        self._due_ms = now_ms + self._setting.options.interval_ms
        self._not_before_ms = now_ms

    def _ended(self, reason: str, now_ms: int) -> list[CheckpointEffect]:
        self._attempt = None
        effects: list[CheckpointEffect] = []
        if self._pending is not None and not self.settling:
            effects += self._abort(reason, now_ms, counts=False)
        while self._savepoints:
            effects.append(AnswerSavepoint(self._savepoints.popleft().request_id, error=f"No savepoint: {reason}"))
        return effects

    def _savepoint(self, event: SavepointRequested, now_ms: int) -> list[CheckpointEffect]:
        if self._attempt is None or self._terminal_id:
            return [AnswerSavepoint(event.request_id, error="A savepoint needs a running job; ask again once it runs.")]
        if len(self._savepoints) >= MAX_QUEUED_SAVEPOINTS:
            text = f"{MAX_QUEUED_SAVEPOINTS} savepoints of this job are waiting already; ask again later."
            return [AnswerSavepoint(event.request_id, error=text)]
        timeout_ms = event.timeout_ms or self._setting.options.timeout_ms
        self._savepoints.append(_Savepoint(event.request_id, now_ms + timeout_ms))
        return []

    def _begin(self, now_ms: int) -> list[CheckpointEffect]:
        """Starts the most urgent checkpoint, if one may start now: terminal, savepoint, periodic."""
        if self._attempt is None or self._pending is not None or self._suspended or self._terminal_id:
            return []
        kind, request = CheckpointKind.CHECKPOINT, None
        periodic = now_ms >= max(self._due_ms, self._not_before_ms)
        if self._savepoints and not self._exhausted:
            kind, request = CheckpointKind.SAVEPOINT, self._savepoints.popleft()
        elif periodic:
            interval_ms = self._setting.options.interval_ms
            self._due_ms += ((now_ms - self._due_ms) // interval_ms + 1) * interval_ms
        else:
            return []
        checkpoint_id = self._next_id
        self._next_id += 1
        self._pending = PendingCheckpoint(
            checkpoint_id,
            self._attempt,
            self._subtasks,
            kind,
            terminal=self._exhausted,
            request_id=request.request_id if request else None,
            deadline_ms=request.deadline_ms if request else None,
        )
        return [PersistCheckpointId(checkpoint_id)]

    def _reserved(
        self, event: CheckpointIdPersisted | CheckpointIdPersistFailed, now_ms: int
    ) -> list[CheckpointEffect]:
        pending = self._pending
        if pending is None or pending.state is not PendingState.RESERVING:
            return []
        if pending.checkpoint_id != event.checkpoint_id:
            return []
        if isinstance(event, CheckpointIdPersistFailed):
            self._not_before_ms = now_ms + _RETRY_MS
            return self._abort(event.reason, now_ms, counts=False)
        pending.triggered(now_ms, self._setting.options.timeout_ms)
        unix_ms = now_ms + self._setting.unix_offset_ms
        return [CheckpointTriggered(pending.attempt, pending.checkpoint_id, pending.kind, pending.terminal, unix_ms)]

    def _declined(self, event: Declined, now_ms: int) -> list[CheckpointEffect]:
        pending, decline = self._pending, event.decline
        subtask = decline.subtask
        if pending is None or pending.state is not PendingState.COLLECTING or subtask is None:
            return []
        if subtask.attempt != pending.attempt or decline.checkpoint_id != pending.checkpoint_id:
            return []
        if (subtask.vertex_id, subtask.subtask) not in pending.expected:
            return []
        reason = f"{subtask.vertex_id}-{subtask.subtask} declined it: {decline.reason}"
        return self._abort(reason, now_ms, counts=True)

    def _may_expire(self, pending: PendingCheckpoint) -> bool:
        return pending.state in (PendingState.RESERVING, PendingState.COLLECTING)

    def _expire(self, now_ms: int) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
        for waiting in [one for one in self._savepoints if now_ms >= one.deadline_ms]:
            self._savepoints.remove(waiting)
            effects.append(AnswerSavepoint(waiting.request_id, error="The savepoint could not start in time."))
        pending = self._pending
        if pending is None or pending.deadline_ms is None or not self._may_expire(pending):
            return effects
        if now_ms >= pending.deadline_ms:
            effects += self._abort(f"not acknowledged in time by {_names(pending.missing())}", now_ms, counts=True)
        return effects

    def _persist(self, now_ms: int) -> list[CheckpointEffect]:
        """Hands a collected checkpoint over to be written; waits while ZooKeeper is suspended."""
        pending = self._pending
        if pending is None or pending.state is not PendingState.COLLECTED or self._suspended:
            return []
        pending.move(PendingState.PERSISTING, now_ms)
        metadata = self._metadata_of(pending)
        record = CompletedCheckpoint(
            checkpoint_id=pending.checkpoint_id,
            pointer=f"{self._setting.directory}/chk-{pending.checkpoint_id}/_metadata",
            size_bytes=pending.state_bytes,
            token=self._setting.token,
            kind=pending.kind,
            triggered_unix_ms=metadata.triggered_unix_ms,
            duration_ms=pending.collected_ms - pending.triggered_ms,
            longest_sync_us=pending.longest_sync_us,
            longest_alignment_ms=pending.longest_alignment_ms,
        )
        return [PersistCheckpoint(metadata, record)]

    def _metadata_of(self, pending: PendingCheckpoint) -> CheckpointMetadata:
        return CheckpointMetadata(
            format_version=FORMAT_VERSION,
            job_key=self._setting.job_key,
            run_id=self._setting.run_id,
            checkpoint_id=pending.checkpoint_id,
            kind=pending.kind,
            token=self._setting.token,
            attempt=pending.attempt.attempt,
            triggered_unix_ms=pending.triggered_ms + self._setting.unix_offset_ms,
            completed_unix_ms=pending.collected_ms + self._setting.unix_offset_ms,
            vertices=self._setting.vertices,
            subtasks=pending.subtask_states(),
            terminal=pending.terminal,
        )

    def _settled(self, event: CheckpointPersisted | CheckpointPersistFailed, now_ms: int) -> list[CheckpointEffect]:
        pending = self._pending
        if pending is None or pending.state is not PendingState.PERSISTING:
            return []
        if isinstance(event, CheckpointPersistFailed):
            if event.checkpoint_id != pending.checkpoint_id:
                return []
            return self._abort(event.reason, now_ms, counts=not event.store_unavailable)
        if event.checkpoint.checkpoint_id != pending.checkpoint_id:
            return []
        return self._complete(pending, event.checkpoint, now_ms)

    def _complete(
        self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, now_ms: int
    ) -> list[CheckpointEffect]:
        metadata = self._metadata_of(pending)
        pending.move(PendingState.COMPLETED, now_ms)
        self._over(now_ms)
        self.completed.add(checkpoint, metadata)
        self.completed_count += 1
        alive = pending.attempt == self._attempt
        if alive:
            self._failures = 0
            self._terminal_id = pending.checkpoint_id if pending.terminal else 0
        newest = self.completed.newest
        effects: list[CheckpointEffect] = []
        if newest is not None:
            effects.append(CheckpointCompleted(pending.attempt, newest, metadata, alive))
        if pending.request_id is not None:
            effects.append(AnswerSavepoint(pending.request_id, newest))
        return effects + [DiscardCheckpoint(one) for one in self.completed.take_subsumed()]

    def _abort(self, reason: str, now_ms: int, *, counts: bool) -> list[CheckpointEffect]:
        """Gives the pending checkpoint up. counts: it may have been the job's fault; savepoints never count."""
        pending = self._pending
        if pending is None:
            return []
        was_triggered = pending.state is not PendingState.RESERVING
        pending.move(PendingState.ABORTED, now_ms)
        self._over(now_ms)
        effects: list[CheckpointEffect] = []
        alive = pending.attempt == self._attempt
        if was_triggered:
            self.aborted_count += 1
            effects.append(CheckpointAborted(pending.attempt, pending.checkpoint_id, reason, alive))
            effects.append(DiscardPending(pending.checkpoint_id))
        if pending.request_id is not None:
            effects.append(AnswerSavepoint(pending.request_id, error=f"The savepoint failed: {reason}."))
        elif counts and alive:
            self._failures += 1
            if self._failures > self._setting.options.tolerable_failures:
                self._attempt = None  # the JobMaster ends it; nothing may begin before
                text = f"checkpoint {pending.checkpoint_id} failed, more than the job tolerates: {reason}"
                effects.append(TooManyFailures(text))
        return effects

    def _over(self, now_ms: int) -> None:
        self._pending = None
        self._not_before_ms = max(self._not_before_ms, now_ms + self._setting.options.min_pause_ms)


def _names(missing: tuple[str, ...]) -> str:
    shown = ", ".join(missing[:5])
    return shown if len(missing) <= 5 else f"{shown} and {len(missing) - 5} more"
