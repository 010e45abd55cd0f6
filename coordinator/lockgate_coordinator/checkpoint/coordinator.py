"""Decides when a checkpoint begins, completes and is aborted.

    idle --due | savepoint | terminal--> one PendingCheckpoint (see pending.py) --completed | aborted--> idle

The job's options bound the number of concurrent checkpoints, one by default. Their records are written one by one, and
a completed checkpoint subsumes those that began before it. Savepoints queue; neither they nor the terminal checkpoint
run concurrently with another one. After the checkpoint that ends its attempt (see final.py) nothing begins; if it is a
savepoint, it answers all clients that still wait for one. The end of an attempt aborts its pending checkpoints, except
one whose record is being written: its outcome is awaited, because it may be completed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import assert_never

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    CheckpointKind,
    CheckpointMode,
    CompletedCheckpoint,
    DeclineCause,
    DeclineCheckpoint,
    StorageTrouble,
    SubtaskId,
)

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.content import CheckpointSetting, metadata_of, record_of
from lockgate_coordinator.checkpoint.effects import (
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
from lockgate_coordinator.checkpoint.events import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    CheckpointEvent,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    CheckpointPersisted,
    CheckpointPersistFailed,
    Declined,
    DisposalBegun,
    Draining,
    InputExhausted,
    LastCheckpointDropped,
    NoFurtherAttempt,
    Resumed,
    SavepointDisposed,
    SavepointRequested,
    SubtaskKey,
    Suspended,
    Tick,
)
from lockgate_coordinator.checkpoint.failures import CheckpointFailures, FailureReason, Fault
from lockgate_coordinator.checkpoint.final import FinalCheckpoint, Purpose
from lockgate_coordinator.checkpoint.handles import NothingToTakeOver
from lockgate_coordinator.checkpoint.pending import AckResult, PendingCheckpoint, PendingState
from lockgate_coordinator.checkpoint.queue import SavepointQueue, Waiting, refused
from lockgate_coordinator.checkpoint.schedule import Schedule
from lockgate_coordinator.checkpoint.under_way import CheckpointsUnderWay


class CheckpointCoordinator:
    """All checkpoints of one job under one leader."""

    def __init__(self, setting: CheckpointSetting, completed: CompletedCheckpoints, next_checkpoint_id: int) -> None:
        """next_checkpoint_id: above every id that was ever used for this job or for what it starts from."""
        self.completed = completed
        self.completed_count = 0
        self.aborted_count = 0
        self.acknowledgements: Counter[AckResult] = Counter()  # by result
        self.final = FinalCheckpoint()
        self.newest_triggered_ms: int | None = None  # when the newest completed one was begun, under this leader
        self._setting = setting
        self._next_id = next_checkpoint_id
        self._pending = CheckpointsUnderWay()
        self._savepoints = SavepointQueue()
        self._attempt: AttemptId | None = None
        self._in_part: AttemptId | None = None  # has ended, but for some of its subtasks
        self._numbers: tuple[int, ...] = ()
        self._subtasks: frozenset[SubtaskKey] = frozenset()
        self._places: tuple[str, ...] = ()
        self._suspended = False
        self._looked_ms: int | None = None  # when whatever is due was last done
        self._failures = CheckpointFailures(setting.options.tolerable_failures)
        self._full_next = False  # the base of an increment was missing
        self._schedule = Schedule(setting.options.interval_ms, setting.options.min_pause_ms)

    @property
    def settling(self) -> bool:
        """True while the outcome of a checkpoint is unknown: nothing may be restored meanwhile."""
        return self._pending.first(PendingState.PERSISTING) is not None

    @property
    def has_request(self) -> bool:
        """A client, or the end of the job, waits for a snapshot."""
        return bool(self._savepoints) or self._pending.has_request

    @property
    def newest_begun_id(self) -> int:
        """The highest id ever used, also by earlier leaders; 0 when there is none."""
        return self._next_id - 1

    @property
    def storage_trouble(self) -> StorageTrouble | None:
        """Since when and why nothing was made durable, if the storage is the cause."""
        trouble = self._failures.trouble
        return trouble and StorageTrouble(trouble[0] + self._setting.unix_offset_ms, trouble[1])

    def handle(self, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:
        """Handles one event; returns the effects in order."""
        effects = self._on(event, now_ms)
        collects = isinstance(event, Acknowledged) and self._pending.first(PendingState.COLLECTED) is None
        if collects and now_ms == self._looked_ms:  # one of thousands, which makes nothing possible
            return effects
        self._looked_ms = now_ms
        effects += self._expire(now_ms)
        effects += self._switch_to_unaligned(now_ms)
        effects += self._persist(now_ms)
        effects += self._begin(now_ms)
        return effects

    def next_wake_ms(self) -> int | None:
        """When the next Tick is needed; None when only events can change anything."""
        times = [self._savepoints.next_deadline_ms(), self._failures.next_wake_ms(), self._pending.next_wake_ms()]
        if self._may_begin():
            times.append(self._schedule.next_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _on(self, event: CheckpointEvent, now_ms: int) -> list[CheckpointEffect]:  # noqa: C901  one case a kind
        """The effects of the event alone."""
        effects: list[CheckpointEffect] = []
        match event:  # the frequent ones first
            case Acknowledged(acknowledge):
                self._acknowledged(acknowledge, now_ms)
            case Tick():
                pass  # whatever is due now
            case CheckpointIdPersisted(checkpoint_id):
                effects = self._reserved(checkpoint_id, now_ms)
            case CheckpointIdPersistFailed(checkpoint_id, reason):
                effects = self._not_reserved(checkpoint_id, reason, now_ms)
            case CheckpointPersisted(checkpoint):
                effects = self._persisted(checkpoint, now_ms)
            case CheckpointPersistFailed(checkpoint_id, text, reason):
                effects = self._not_persisted(checkpoint_id, reason, text, now_ms)
            case Declined(decline):
                effects = self._declined(decline, now_ms)
            case SavepointRequested():
                effects = self._savepoint(event, now_ms)
            case AttemptRunning():
                effects = self._started(event, now_ms)
            case AttemptEnded(reason, in_part):
                effects = self._ended(reason, now_ms, in_part=in_part)
            case NoFurtherAttempt(reason):
                effects = refused(self._savepoints.take_all(), reason)
            case InputExhausted():
                self.final.input_ended(event.kind, now_ms)
                self._schedule.hurry(now_ms)
            case Draining():
                effects = self._drained(now_ms)
            case LastCheckpointDropped():
                self.final.dropped(now_ms)
                self._savepoints.take_final()  # it may not have begun
            case DisposalBegun(checkpoint_id):
                self.completed.dispose(checkpoint_id)
            case SavepointDisposed(checkpoint_id):
                self.completed.forget(checkpoint_id)
            case Suspended():
                self._suspended = True
            case Resumed():
                self._suspended = False
            case _:
                assert_never(event)
        return effects

    def _acknowledged(self, acknowledge: AcknowledgeCheckpoint, now_ms: int) -> None:
        pending = self._pending.find(acknowledge.checkpoint_id)
        if pending is not None:
            result = pending.acknowledge(acknowledge, now_ms)
        else:
            was_used = acknowledge.checkpoint_id <= self.newest_begun_id
            result = AckResult.DISCARDED if was_used else AckResult.UNKNOWN
        self.acknowledgements[result] += 1

    def _started(self, event: AttemptRunning, now_ms: int) -> list[CheckpointEffect]:
        """Also discards what earlier leaders left undeleted: only now, so that a failover does not wait for it."""
        self._attempt, self._in_part = event.attempt, None
        self._subtasks, self._places, self._numbers = event.subtasks, event.places, event.numbers
        if event.vertices:
            self._setting = replace(self._setting, vertices=event.vertices)
        self.final = FinalCheckpoint(f"attempt {event.attempt.attempt} of job {event.attempt.job_key}")
        if event.stopped_with:
            self.final.restored(event.stopped_with, now_ms)
        self._failures.started(now_ms)
        self._schedule.started(now_ms)
        if event.is_adopted:
            self._schedule.hurry(now_ms)
        return self._discard_subsumed()

    def _ended(self, reason: str, now_ms: int, *, in_part: bool) -> list[CheckpointEffect]:
        self._attempt, self._in_part = None, self._attempt if in_part else None
        self.final = FinalCheckpoint()
        self._failures.stopped()
        effects: list[CheckpointEffect] = []
        for pending in self._pending:
            if pending.state is not PendingState.PERSISTING:
                effects += self._abort(pending, FailureReason.ATTEMPT_ENDED, now_ms, reason)
        return effects + refused(self._savepoints.take_final(), reason)

    def _drained(self, now_ms: int) -> list[CheckpointEffect]:
        """Aborts checkpoints that are not triggered yet, because the sources stop; their clients keep waiting."""
        pending = self._pending.first(PendingState.RESERVING)
        if not self.final.draining(now_ms) or pending is None:
            return []
        if pending.request_id is not None and pending.deadline_ms is not None:
            self._savepoints.put_back(Waiting(pending.request_id, pending.deadline_ms, pending.kind))
            pending.request_id = None
        return self._abort(pending, FailureReason.SOURCES_STOP, now_ms)

    def _savepoint(self, event: SavepointRequested, now_ms: int) -> list[CheckpointEffect]:
        name, is_clients = event.request_id, event.ends_for is None
        if is_clients and (known := self.completed.answer_to(name)) is not None:
            return [AnswerSavepoint(name, known)]
        if is_clients and (self._savepoints.holds(name) or self._pending.answers(name)):
            return []  # it is asked for again, and answered once
        if self.final.ends_job or (self._attempt is None and not is_clients):
            text = "A savepoint needs a running job; try again once it runs."
            return [AnswerSavepoint(name, error=text, busy=True)]
        if full := self._savepoints.refusal(self.completed.savepoint_count if is_clients else 0):
            return [AnswerSavepoint(name, error=full, busy=self._savepoints.is_full)]
        timeout_ms = event.timeout_ms or self._setting.options.timeout_ms
        self._savepoints.add(Waiting(name, now_ms + timeout_ms, event.kind, event.ends_for, event.may_overtake))
        if event.ends_for is not None:
            self.final.wanted(event.ends_for, now_ms)
        return []

    def _begin(self, now_ms: int) -> list[CheckpointEffect]:
        """Starts the checkpoint with the highest priority, if one may start: terminal, savepoint, periodic."""
        if self._attempt is None or not self._may_begin():
            return []
        kind, request = CheckpointKind.CHECKPOINT, None
        is_terminal = self.final.awaits_terminal
        ends_for = Purpose.END_OF_INPUT if is_terminal else None
        if not is_terminal and (request := self._savepoints.take()) is not None:
            kind, ends_for = request.kind, request.ends_for
        elif now_ms >= self._schedule.next_ms:
            kind = self.final.kind if is_terminal else kind
            self._schedule.begun(now_ms)
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
            places=self._places,
            numbers=self._numbers,
        )
        begun.must_align = request is not None and not request.may_overtake
        self._pending.add(begun)
        return [PersistCheckpointId(checkpoint_id)]

    def _may_begin(self) -> bool:
        """Whether the next one may begin: a savepoint or the terminal one shares the time with no other."""
        if self._attempt is None or self._suspended or self.final.holds_back:
            return False
        is_next_alone = bool(self._savepoints) or self.final.awaits_terminal
        return self._pending.leave_room(1 if is_next_alone else max(1, self._setting.options.max_concurrent))

    def _not_reserved(self, checkpoint_id: int, reason: str, now_ms: int) -> list[CheckpointEffect]:
        pending = self._pending.find(checkpoint_id, PendingState.RESERVING)
        if pending is None:
            return []
        self._schedule.not_begun(now_ms)
        return self._abort(pending, FailureReason.ID_NOT_WRITTEN, now_ms, reason)

    def _reserved(self, checkpoint_id: int, now_ms: int) -> list[CheckpointEffect]:
        pending = self._pending.find(checkpoint_id, PendingState.RESERVING)
        if pending is None:
            return []
        options = self._setting.options
        pending.triggered(now_ms, options.timeout_ms)
        pending.details.triggered_unix_ms = now_ms + self._setting.unix_offset_ms
        if self._may_overtake(pending):
            pending.turn_at_ms = now_ms + options.aligned_timeout_ms
            pending.unaligned = options.aligned_timeout_ms == 0
        if pending.unaligned:
            pending.turn_at_ms = None
        return [self._trigger(pending)]

    def _may_overtake(self, pending: PendingCheckpoint) -> bool:
        """Savepoints are for other shapes of the job, and nothing is in flight when every input has ended."""
        is_unaligned = self._setting.options.mode is CheckpointMode.UNALIGNED
        must_wait = pending.must_align or pending.kind is CheckpointKind.SAVEPOINT or pending.terminal
        return is_unaligned and not must_wait

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

    def _switch_to_unaligned(self, now_ms: int) -> list[CheckpointEffect]:
        """Switches an aligned checkpoint that has taken too long to unaligned."""
        effects: list[CheckpointEffect] = []
        for pending in self._pending.to_switch(now_ms):
            pending.turn_at_ms, pending.unaligned = None, True
            effects.append(self._trigger(pending))
        return effects

    def _declined(self, decline: DeclineCheckpoint, now_ms: int) -> list[CheckpointEffect]:
        pending = self._pending.find(decline.checkpoint_id)
        subtask = decline.subtask
        if decline.cause is DeclineCause.REPLAYING:
            if subtask is not None and self._is_ours(subtask):
                self._failures.forgiven(decline.checkpoint_id, (subtask.vertex_id, subtask.subtask))
            return []
        is_storage = decline.cause is DeclineCause.STORAGE_FAILED
        if pending is None and subtask is not None and is_storage and self._is_ours(subtask):
            key = (subtask.vertex_id, subtask.subtask)
            self._failures.excused(decline.checkpoint_id, key, f"{key[0]}-{key[1]}: {decline.reason}")
        if pending is None or pending.state is not PendingState.COLLECTING or subtask is None:
            return []
        if pending.member(subtask) is None:
            return []
        text = f"{subtask.vertex_id}-{subtask.subtask} declined it: {decline.reason}"
        reason = FailureReason.STORAGE_DECLINED if is_storage else FailureReason.DECLINED
        return self._abort(pending, reason, now_ms, text)

    def _is_ours(self, subtask: SubtaskId) -> bool:
        """True for a subtask of the running attempt, or of an earlier one from which it runs on."""
        ours, given = self._attempt, subtask.attempt
        if ours is None or given is None or given == ours or not self._numbers:
            return given == ours and ours is not None
        return given.run_id == ours.run_id and given.attempt in self._numbers

    def _expire(self, now_ms: int) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
        for waiting in self._savepoints.take_late(now_ms):
            if waiting.ends_for is not None and not self.final.holds_back:
                self.final.dropped(now_ms)
            effects.append(AnswerSavepoint(waiting.request_id, error="The savepoint could not start in time."))
        for pending in self._pending.late(now_ms):
            effects += self._out_of_time(pending, now_ms)
        if self._attempt is not None and (reason := self._failures.overdue(now_ms)):
            effects.append(self._too_many(reason))
        return effects

    def _out_of_time(self, pending: PendingCheckpoint, now_ms: int) -> list[CheckpointEffect]:
        """Aborts an expired checkpoint. The subtasks' answers decide whose fault it is; a savepoint never counts."""
        late = f"not acknowledged in time by {pending.missing()}"
        counts = pending.request_id is None and pending.attempt == self._attempt
        effects = self._abort(pending, FailureReason.EXPIRED, now_ms, late)
        text = f"checkpoint {pending.checkpoint_id} was {late}"
        if counts and self._failures.expired(pending.checkpoint_id, pending.absent, text, now_ms):
            effects.append(self._too_many(text))
        return effects

    def _too_many(self, reason: str) -> TooManyFailures:
        self._attempt = None  # the JobMaster ends it; nothing may begin before
        return TooManyFailures(f"{reason}: one more failed checkpoint than the job tolerates")

    def _persist(self, now_ms: int) -> list[CheckpointEffect]:
        """Persists a collected checkpoint, one at a time; waits while ZooKeeper is suspended."""
        pending = self._pending.first(PendingState.COLLECTED)
        if pending is None or self.settling or self._suspended:
            return []
        try:
            metadata = metadata_of(pending, self._setting, self.completed.bases())
        except NothingToTakeOver as error:
            self._full_next = True  # a full one needs no base
            reason = FailureReason.INCOMPLETE if pending.completed_id == 0 else FailureReason.BASE_MISSING
            return self._abort(pending, reason, now_ms, str(error))
        pending.move(PendingState.PERSISTING, now_ms)
        record = record_of(pending, metadata, self._setting, self._answers(pending))
        return [PersistCheckpoint(metadata, record)]

    def _answers(self, pending: PendingCheckpoint) -> tuple[str, ...]:
        """Ids of the client requests that it answers once it is complete."""
        if pending.kind is not CheckpointKind.SAVEPOINT:
            return ()
        if pending.checkpoint_id == self.final.checkpoint_id:  # its own request is the JobMaster's
            return self._savepoints.clients()
        return (pending.request_id,) if pending.request_id is not None else ()

    def _persisted(self, checkpoint: CompletedCheckpoint, now_ms: int) -> list[CheckpointEffect]:
        pending = self._pending.find(checkpoint.checkpoint_id, PendingState.PERSISTING)
        return self._complete(pending, checkpoint, now_ms) if pending is not None else []

    def _not_persisted(
        self, checkpoint_id: int, reason: FailureReason, text: str, now_ms: int
    ) -> list[CheckpointEffect]:
        pending = self._pending.find(checkpoint_id, PendingState.PERSISTING)
        return self._abort(pending, reason, now_ms, text) if pending is not None else []

    def _complete(
        self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, now_ms: int
    ) -> list[CheckpointEffect]:
        metadata = metadata_of(pending, self._setting, self.completed.bases())
        pending.move(PendingState.COMPLETED, now_ms)
        self._remove_pending(pending, now_ms)
        self.completed.add(checkpoint, metadata)
        self.completed.details.keep(pending.details)
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
            self.completed.history.completed(pending, newest)
            runs = alive or pending.attempt == self._in_part
            effects.append(CheckpointCompleted(pending.attempt, newest, metadata, runs, pending.details))
        if pending.request_id is not None:
            effects.append(AnswerSavepoint(pending.request_id, newest))
        if self.final.ends_job and pending.kind is CheckpointKind.SAVEPOINT:  # none can follow it
            effects += [AnswerSavepoint(waiting.request_id, newest) for waiting in self._savepoints.take_all()]
        for older in self._pending:
            if older.checkpoint_id < pending.checkpoint_id:
                text = f"checkpoint {pending.checkpoint_id} subsumes it"
                effects += self._abort(older, FailureReason.SUBSUMED, now_ms, text)
        return effects + self._discard_subsumed()

    def _discard_subsumed(self) -> list[CheckpointEffect]:
        subsumed = self.completed.take_subsumed(self._pending.oldest_base)
        return [DiscardCheckpoint(gone.checkpoint, gone.free) for gone in subsumed]

    def _abort(
        self, pending: PendingCheckpoint, reason: FailureReason, now_ms: int, text: str = ""
    ) -> list[CheckpointEffect]:
        """Aborts a pending checkpoint. A failed savepoint never counts as the job's fault."""
        text, fault = text or reason.value, reason.fault
        self.final.given_up(pending.checkpoint_id, now_ms)
        was_triggered = pending.state is not PendingState.RESERVING
        pending.move(PendingState.ABORTED, now_ms)
        self._remove_pending(pending, now_ms)
        effects: list[CheckpointEffect] = []
        alive = pending.attempt == self._attempt
        if was_triggered:
            self.aborted_count += 1
            self.completed.history.aborted(pending, reason, text, self._setting, now_ms)
            number = pending.checkpoint_id
            runs = alive or pending.attempt == self._in_part
            effects.append(CheckpointAborted(pending.attempt, number, reason, text, runs, pending.details))
            effects.append(DiscardPending(pending.checkpoint_id))
        if pending.request_id is not None:
            effects.append(AnswerSavepoint(pending.request_id, error=f"The savepoint failed: {text}."))
            fault = Fault.NONE if fault is Fault.JOB else fault
        if alive and self._failures.failed(fault, text) and fault is Fault.JOB:
            effects.append(self._too_many(f"checkpoint {pending.checkpoint_id} failed: {text}"))
        return effects

    def _remove_pending(self, pending: PendingCheckpoint, now_ms: int) -> None:
        self._pending.remove(pending)
        self._schedule.ended(now_ms)
