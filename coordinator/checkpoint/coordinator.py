"""When a checkpoint begins, when it is complete, when it is given up.

    idle --due | savepoint | terminal--> one PendingCheckpoint (see pending.py) --completed | aborted--> idle

As many checkpoints at a time as the job's options allow, one unless they say otherwise; their records are written one
by one, and a completed one subsumes those that began before it. Savepoints queue, and neither they nor the terminal
checkpoint share their time with another one. After the one that ends its attempt (see final.py) nothing begins; when it
is a savepoint it answers everybody who still waits for one. An attempt that ends takes its pending checkpoints with
it, except one whose record is being written: that one is waited for, because it may turn out to be completed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lockgate_proto.messages import (
    AttemptId,
    CheckpointKind,
    CheckpointMetadata,
    CheckpointMode,
    CheckpointOptions,
    CompletedCheckpoint,
    DeclineCause,
    StorageTrouble,
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
    Draining,
    InputExhausted,
    LastOneDropped,
    Resumed,
    SavepointRequested,
    SubtaskKey,
    Suspended,
)
from coordinator.checkpoint.failures import CheckpointFailures, Fault
from coordinator.checkpoint.final import FinalCheckpoint, Purpose
from coordinator.checkpoint.handles import (
    NothingToTakeOver,
    completed_handles,
    diffs,
    is_incremental,
    size_bytes,
    written_bytes,
)
from coordinator.checkpoint.pending import PendingCheckpoint, PendingState
from coordinator.checkpoint.queue import MAX_QUEUED, SavepointQueue, Waiting

FORMAT_VERSION = 1
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


class CheckpointCoordinator:
    """All checkpoints of one job under one leader."""

    def __init__(self, setting: CheckpointSetting, completed: CompletedCheckpoints, next_checkpoint_id: int) -> None:
        """next_checkpoint_id: above every id that was ever used for this job or for what it starts from."""
        self.completed = completed
        self.completed_count = 0
        self.aborted_count = 0
        self.final = FinalCheckpoint()
        self.newest_triggered_ms: int | None = None  # when the newest completed one was begun, under this leader
        self._setting = setting
        self._next_id = next_checkpoint_id
        self._pending: list[PendingCheckpoint] = []  # oldest first
        self._savepoints = SavepointQueue()
        self._attempt: AttemptId | None = None
        self._subtasks: frozenset[SubtaskKey] = frozenset()
        self._suspended = False
        self._failures = CheckpointFailures(setting.options.tolerable_failures)
        self._full_next = False  # an increment had nothing to stand on
        self._due_ms = 0
        self._not_before_ms = 0

    @property
    def settling(self) -> bool:
        """True while it is not known whether a checkpoint is completed: nothing may be restored meanwhile."""
        return any(one.state is PendingState.PERSISTING for one in self._pending)

    @property
    def has_request(self) -> bool:
        """Somebody waits for a snapshot, or the job's end does."""
        return bool(self._savepoints) or any(one.request_id is not None or one.terminal for one in self._pending)

    @property
    def newest_begun_id(self) -> int:
        """The highest id that was ever used, also by leaders before; 0 when none was."""
        return self._next_id - 1

    @property
    def storage_trouble(self) -> StorageTrouble | None:
        """Since when and why nothing was made durable, when the storage is to blame."""
        trouble = self._failures.trouble
        return trouble and StorageTrouble(trouble[0] + self._setting.unix_offset_ms, trouble[1])

    def handle(self, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:
        """The one entrance."""
        effects = self._react(event, now_ms)
        effects += self._expire(now_ms)
        effects += self._turn(now_ms)
        effects += self._persist(now_ms)
        effects += self._begin(now_ms)
        return effects

    def next_wake_ms(self) -> int | None:
        """When a Tick is wanted, None when only events can change anything."""
        deadline_ms = self._savepoints.next_deadline_ms()
        times = [] if deadline_ms is None else [deadline_ms]
        if (doubt_ms := self._failures.next_wake_ms()) is not None:
            times.append(doubt_ms)
        for pending in self._pending:
            if self._may_expire(pending):
                times += [at for at in (pending.deadline_ms, pending.turn_at_ms) if at is not None]
        if self._may_begin():
            times.append(max(self._due_ms, self._not_before_ms))
        return min(times, default=None)

    def _react(self, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
        if isinstance(event, Acknowledged):
            self._acknowledged(event, now_ms)
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
        elif isinstance(event, Draining):
            effects = self._drained(now_ms)
        elif isinstance(event, LastOneDropped):
            self.final.dropped(now_ms)
            self._savepoints.drop_final()  # it may not have begun
        elif isinstance(event, InputExhausted):
            kind = CheckpointKind.SAVEPOINT if event.is_savepoint else CheckpointKind.CHECKPOINT
            self.final.input_ended(kind, now_ms)
            self._due_ms = self._not_before_ms = now_ms
        elif isinstance(event, (Suspended, Resumed)):
            self._suspended = isinstance(event, Suspended)
        return effects

    def _acknowledged(self, event: Acknowledged, now_ms: int) -> None:
        pending = self._find(event.acknowledge.checkpoint_id)
        if pending is not None:
            pending.acknowledge(event.acknowledge, now_ms)

    def _started(self, event: AttemptRunning, now_ms: int) -> None:
        self._attempt = event.attempt
        self._subtasks = event.subtasks
        if event.vertices:
            self._setting = replace(self._setting, vertices=event.vertices)
        self.final = FinalCheckpoint(f"attempt {event.attempt.attempt} of job {event.attempt.job_key}")
        if event.stopped_with:
            self.final.restored(event.stopped_with, now_ms)
        self._failures.started(now_ms)
        self._due_ms = now_ms + self._setting.options.interval_ms
        self._not_before_ms = now_ms

    def _ended(self, reason: str, now_ms: int) -> list[CheckpointEffect]:
        self._attempt = None
        self.final = FinalCheckpoint()
        self._failures.stopped()
        effects: list[CheckpointEffect] = []
        for pending in [one for one in self._pending if one.state is not PendingState.PERSISTING]:
            effects += self._abort(pending, reason, now_ms)
        error = f"No savepoint: {reason}"
        return effects + [AnswerSavepoint(one.request_id, error=error) for one in self._savepoints.take_all()]

    def _drained(self, now_ms: int) -> list[CheckpointEffect]:
        """What is not triggered yet would find sources that have stopped; who waits for it waits on."""
        if not self.final.draining(now_ms):
            return []
        effects: list[CheckpointEffect] = []
        for one in [one for one in self._pending if one.state is PendingState.RESERVING]:
            if one.request_id is not None and one.deadline_ms is not None:
                self._savepoints.put_back(Waiting(one.request_id, one.deadline_ms, one.kind))
                one.request_id = None
            effects += self._abort(one, "the sources stop reading", now_ms)
        return effects

    def _savepoint(self, event: SavepointRequested, now_ms: int) -> list[CheckpointEffect]:
        name, is_clients = event.request_id, event.ends_for is None
        if is_clients and (known := self.completed.answer_to(name)) is not None:
            return [AnswerSavepoint(name, known)]
        if is_clients and (self._savepoints.holds(name) or any(one.request_id == name for one in self._pending)):
            return []  # it is asked for again, and answered once
        if self._attempt is None or self.final.ends_job:
            return [AnswerSavepoint(name, error="A savepoint needs a running job; ask again once it runs.")]
        if self._savepoints.is_full:
            text = f"{MAX_QUEUED} savepoints of this job are waiting already; ask again later."
            return [AnswerSavepoint(name, error=text)]
        timeout_ms = event.timeout_ms or self._setting.options.timeout_ms
        self._savepoints.add(Waiting(name, now_ms + timeout_ms, event.kind, event.ends_for))
        if event.ends_for is not None:
            self.final.wanted(event.ends_for, now_ms)
        return []

    def _begin(self, now_ms: int) -> list[CheckpointEffect]:
        """Starts the most urgent checkpoint, if one may start now: terminal, savepoint, periodic."""
        if self._attempt is None or not self._may_begin():
            return []
        kind, request = CheckpointKind.CHECKPOINT, None
        is_terminal = self.final.awaits_terminal
        ends_for = Purpose.END_OF_INPUT if is_terminal else None
        if not is_terminal and (request := self._savepoints.take()) is not None:
            kind, ends_for = request.kind, request.ends_for
        elif now_ms >= max(self._due_ms, self._not_before_ms):
            kind = self.final.kind if is_terminal else kind
            interval_ms = self._setting.options.interval_ms
            self._due_ms += ((now_ms - self._due_ms) // interval_ms + 1) * interval_ms
        else:
            return []
        checkpoint_id = self._next_id
        self._next_id += 1
        if ends_for is not None:
            self.final.begun(checkpoint_id, ends_for, now_ms)
        begun = PendingCheckpoint(
            checkpoint_id,
            self._attempt,
            self._subtasks,
            kind,
            terminal=is_terminal,
            request_id=request.request_id if request else None,
            deadline_ms=request.deadline_ms if request else None,
            completed_id=0 if self._full_next else self.completed.newest_checkpoint_id,
        )
        self._pending.append(begun)
        return [PersistCheckpointId(checkpoint_id)]

    def _may_begin(self) -> bool:
        """Whether the next one may begin: a savepoint or the terminal one shares the time with no other."""
        if self._attempt is None or self._suspended or self.final.holds_back:
            return False
        is_next_alone = bool(self._savepoints) or self.final.awaits_terminal
        most = 1 if is_next_alone else max(1, self._setting.options.max_concurrent)
        is_exclusive = any(one.terminal or one.kind is CheckpointKind.SAVEPOINT for one in self._pending)
        is_reserving = any(one.state is PendingState.RESERVING for one in self._pending)
        return len(self._pending) < most and not is_exclusive and not is_reserving

    def _find(self, checkpoint_id: int) -> PendingCheckpoint | None:
        return next((one for one in self._pending if one.checkpoint_id == checkpoint_id), None)

    def _reserved(
        self, event: CheckpointIdPersisted | CheckpointIdPersistFailed, now_ms: int
    ) -> list[CheckpointEffect]:
        pending = self._find(event.checkpoint_id)
        if pending is None or pending.state is not PendingState.RESERVING:
            return []
        if isinstance(event, CheckpointIdPersistFailed):
            self._not_before_ms = now_ms + _RETRY_MS
            return self._abort(pending, event.reason, now_ms)
        options = self._setting.options
        pending.triggered(now_ms, options.timeout_ms)
        if self._may_overtake(pending):
            pending.turn_at_ms = now_ms + options.aligned_timeout_ms
            pending.unaligned = options.aligned_timeout_ms == 0
        if pending.unaligned:
            pending.turn_at_ms = None
        return [self._trigger(pending)]

    def _may_overtake(self, pending: PendingCheckpoint) -> bool:
        """Savepoints are for other shapes of the job, and nothing is in flight when every input has ended."""
        is_unaligned = self._setting.options.mode is CheckpointMode.UNALIGNED
        asked_for = pending.request_id is not None or pending.kind is CheckpointKind.SAVEPOINT or pending.terminal
        return is_unaligned and not asked_for

    def _trigger(self, pending: PendingCheckpoint) -> CheckpointTriggered:
        unix_ms = pending.triggered_ms + self._setting.unix_offset_ms
        return CheckpointTriggered(
            pending.attempt,
            pending.checkpoint_id,
            pending.kind,
            pending.terminal,
            unix_ms,
            pending.completed_id,
            pending.unaligned,
        )

    def _turn(self, now_ms: int) -> list[CheckpointEffect]:
        """An aligned checkpoint that has taken too long goes on unaligned."""
        effects: list[CheckpointEffect] = []
        for one in self._pending:
            is_late = one.turn_at_ms is not None and now_ms >= one.turn_at_ms
            if is_late and one.state is PendingState.COLLECTING:
                one.turn_at_ms, one.unaligned = None, True
                effects.append(self._trigger(one))
        return effects

    def _declined(self, event: Declined, now_ms: int) -> list[CheckpointEffect]:
        decline = event.decline
        pending = self._find(decline.checkpoint_id)
        subtask = decline.subtask
        is_storage = decline.cause is DeclineCause.STORAGE_FAILED
        if pending is None and subtask is not None and is_storage and subtask.attempt == self._attempt:
            key = (subtask.vertex_id, subtask.subtask)
            self._failures.excused(decline.checkpoint_id, key, f"{key[0]}-{key[1]}: {decline.reason}")
        if pending is None or pending.state is not PendingState.COLLECTING or subtask is None:
            return []
        if subtask.attempt != pending.attempt:
            return []
        if (subtask.vertex_id, subtask.subtask) not in pending.expected:
            return []
        reason = f"{subtask.vertex_id}-{subtask.subtask} declined it: {decline.reason}"
        return self._abort(pending, reason, now_ms, Fault.STORAGE if is_storage else Fault.JOB)

    def _may_expire(self, pending: PendingCheckpoint) -> bool:
        return pending.state in (PendingState.RESERVING, PendingState.COLLECTING)

    def _expire(self, now_ms: int) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
        for waiting in self._savepoints.take_late(now_ms):
            if waiting.ends_for is not None and not self.final.holds_back:
                self.final.dropped(now_ms)
            effects.append(AnswerSavepoint(waiting.request_id, error="The savepoint could not start in time."))
        for pending in list(self._pending):
            is_late = pending.deadline_ms is not None and now_ms >= pending.deadline_ms
            if is_late and self._may_expire(pending):
                effects += self._out_of_time(pending, now_ms)
        if self._attempt is not None and (reason := self._failures.overdue(now_ms)):
            effects.append(self._too_many(reason))
        return effects

    def _out_of_time(self, pending: PendingCheckpoint, now_ms: int) -> list[CheckpointEffect]:
        """Whose fault it is shows when the subtasks have answered; a savepoint counts as nobody's."""
        reason = f"not acknowledged in time by {pending.missing()}"
        counts = pending.request_id is None and pending.attempt == self._attempt
        effects = self._abort(pending, reason, now_ms, Fault.NONE)
        text = f"checkpoint {pending.checkpoint_id} was {reason}"
        if counts and self._failures.expired(pending.checkpoint_id, pending.absent, text, now_ms):
            effects.append(self._too_many(text))
        return effects

    def _too_many(self, reason: str) -> TooManyFailures:
        self._attempt = None  # the JobMaster ends it; nothing may begin before
        return TooManyFailures(f"{reason}: one failed checkpoint more than the job tolerates")

    def _persist(self, now_ms: int) -> list[CheckpointEffect]:
        """Hands a collected checkpoint over to be written, one at a time; waits while ZooKeeper is suspended."""
        pending = next((one for one in self._pending if one.state is PendingState.COLLECTED), None)
        if pending is None or self.settling or self._suspended:
            return []
        try:
            metadata = self._metadata_of(pending)
        except NothingToTakeOver as error:
            self._full_next = True  # a full one needs nothing of what is not there
            fault = Fault.JOB if pending.completed_id == 0 else Fault.NONE
            return self._abort(pending, str(error), now_ms, fault)
        pending.move(PendingState.PERSISTING, now_ms)
        diff_values, diff_saved_bytes = diffs(metadata.subtasks, pending.checkpoint_id)
        record = CompletedCheckpoint(
            checkpoint_id=pending.checkpoint_id,
            pointer=f"{self._setting.directory}/chk-{pending.checkpoint_id}/_metadata",
            size_bytes=size_bytes(metadata.subtasks),
            token=self._setting.token,
            kind=pending.kind,
            triggered_unix_ms=metadata.triggered_unix_ms,
            duration_ms=pending.collected_ms - pending.triggered_ms,
            longest_sync_us=pending.longest_sync_us,
            longest_alignment_ms=pending.longest_alignment_ms,
            incremental=is_incremental(metadata.subtasks, pending.checkpoint_id),
            written_bytes=written_bytes(metadata.subtasks, pending.checkpoint_id),
            unaligned=pending.unaligned,
            channel_state_bytes=pending.channel_state_bytes,
            diff_values=diff_values,
            diff_saved_bytes=diff_saved_bytes,
            request_ids=self._answers(pending),
        )
        return [PersistCheckpoint(metadata, record)]

    def _answers(self, pending: PendingCheckpoint) -> tuple[str, ...]:
        """Ids of the clients' requests that it answers once it is complete."""
        if pending.kind is not CheckpointKind.SAVEPOINT:
            return ()
        if pending.checkpoint_id == self.final.checkpoint_id:  # its own request is the JobMaster's
            return self._savepoints.clients()
        return (pending.request_id,) if pending.request_id is not None else ()

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
            subtasks=completed_handles(pending.subtask_states(), self.completed.bases()),
            terminal=pending.terminal,
        )

    def _settled(self, event: CheckpointPersisted | CheckpointPersistFailed, now_ms: int) -> list[CheckpointEffect]:
        number = event.checkpoint_id if isinstance(event, CheckpointPersistFailed) else event.checkpoint.checkpoint_id
        pending = self._find(number)
        if pending is None or pending.state is not PendingState.PERSISTING:
            return []
        if isinstance(event, CheckpointPersistFailed):
            return self._abort(pending, event.reason, now_ms, event.fault)
        return self._complete(pending, event.checkpoint, now_ms)

    def _complete(
        self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, now_ms: int
    ) -> list[CheckpointEffect]:
        metadata = self._metadata_of(pending)
        pending.move(PendingState.COMPLETED, now_ms)
        self._over(pending, now_ms)
        self.completed.add(checkpoint, metadata)
        self.completed_count += 1
        self.newest_triggered_ms = pending.triggered_ms
        if pending.completed_id == 0 and pending.kind is not CheckpointKind.SAVEPOINT:
            self._full_next = False
        alive = pending.attempt == self._attempt
        if alive:
            self._failures.completed(now_ms)
            self.final.completed(pending.checkpoint_id, now_ms)
        newest = self.completed.newest
        effects: list[CheckpointEffect] = []
        if newest is not None:
            effects.append(CheckpointCompleted(pending.attempt, newest, metadata, alive))
        if pending.request_id is not None:
            effects.append(AnswerSavepoint(pending.request_id, newest))
        if self.final.ends_job and pending.kind is CheckpointKind.SAVEPOINT:  # none can follow it
            effects += [AnswerSavepoint(one.request_id, newest) for one in self._savepoints.take_all()]
        for older in [one for one in self._pending if one.checkpoint_id < pending.checkpoint_id]:
            effects += self._abort(older, f"checkpoint {pending.checkpoint_id} subsumes it", now_ms)
        subsumed = self.completed.take_subsumed(min((one.completed_id for one in self._pending), default=None))
        return effects + [DiscardCheckpoint(one.checkpoint, one.free) for one in subsumed]

    def _abort(
        self, pending: PendingCheckpoint, reason: str, now_ms: int, fault: Fault = Fault.NONE
    ) -> list[CheckpointEffect]:
        """Gives a pending checkpoint up. A savepoint that fails is never the job's fault."""
        self.final.given_up(pending.checkpoint_id, now_ms)
        was_triggered = pending.state is not PendingState.RESERVING
        pending.move(PendingState.ABORTED, now_ms)
        self._over(pending, now_ms)
        effects: list[CheckpointEffect] = []
        alive = pending.attempt == self._attempt
        if was_triggered:
            self.aborted_count += 1
            effects.append(CheckpointAborted(pending.attempt, pending.checkpoint_id, reason, alive))
            effects.append(DiscardPending(pending.checkpoint_id))
        if pending.request_id is not None:
            effects.append(AnswerSavepoint(pending.request_id, error=f"The savepoint failed: {reason}."))
            fault = Fault.NONE if fault is Fault.JOB else fault
        if alive and self._failures.failed(fault, reason) and fault is Fault.JOB:
            effects.append(self._too_many(f"checkpoint {pending.checkpoint_id} failed: {reason}"))
        return effects

    def _over(self, pending: PendingCheckpoint, now_ms: int) -> None:
        self._pending.remove(pending)
        self._not_before_ms = max(self._not_before_ms, now_ms + self._setting.options.min_pause_ms)
