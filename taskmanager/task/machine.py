"""What one subtask does next. Pure: the loop in taskmanager.runtime executes the effects.

    CREATED --> OPENING --> STARTING --> RUNNING --> FLUSHING --> EXHAUSTED
                   |    source: straight    ^
                   +------------------------+

    each of these --CancelRequested--> CANCELING --Closed--> CANCELED
    each of these --Failed-----------> FAILING ----Closed--> FAILED

STARTING: open, but no prologue or first element has come from upstream yet; sources have nothing to wait for.
EXHAUSTED still takes part in checkpoints. A failure while canceling is nobody's business.

The order that never changes: freeze, forward the barrier, upload, acknowledge; commit only what was acknowledged
here and reported complete by the leader. An unaligned checkpoint begins to record its input channels between freezing
and forwarding, before anything more is taken from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from lockgate_proto.messages import AttemptId, Barrier, CheckpointKind, SubtaskPhase

from taskmanager.task import effects as do
from taskmanager.task import events as on
from taskmanager.task.checkpoints import CheckpointPhase, SubtaskCheckpoints
from taskmanager.task.errors import IllegalTransition

STORY_LENGTH = 32


class LifeCycle(Enum):
    """Where a subtask is in its life."""

    CREATED = "created"
    OPENING = "opening"
    STARTING = "starting"
    RUNNING = "running"
    FLUSHING = "flushing"
    EXHAUSTED = "exhausted"
    CANCELING = "canceling"
    CANCELED = "canceled"
    FAILING = "failing"
    FAILED = "failed"


_S = LifeCycle
_ENDING = frozenset({_S.CANCELING, _S.FAILING})

ALLOWED: dict[LifeCycle, frozenset[LifeCycle]] = {
    _S.CREATED: frozenset({_S.OPENING}) | _ENDING,
    _S.OPENING: frozenset({_S.STARTING, _S.RUNNING}) | _ENDING,
    _S.STARTING: frozenset({_S.RUNNING}) | _ENDING,
    _S.RUNNING: frozenset({_S.FLUSHING}) | _ENDING,
    _S.FLUSHING: frozenset({_S.EXHAUSTED}) | _ENDING,
    _S.EXHAUSTED: _ENDING,
    _S.CANCELING: frozenset({_S.CANCELED}),
    _S.FAILING: frozenset({_S.FAILED}),
    _S.CANCELED: frozenset(),
    _S.FAILED: frozenset(),
}

LIVE = frozenset({_S.CREATED, _S.OPENING, _S.STARTING, _S.RUNNING, _S.FLUSHING, _S.EXHAUSTED})
_TAKES_BARRIERS = frozenset({_S.STARTING, _S.RUNNING, _S.EXHAUSTED})


class SubtaskMachine:
    """One subtask of one attempt."""

    def __init__(self, attempt: AttemptId, is_source: bool, stops_world: bool = False) -> None:
        """stops_world: the source reads nothing while one of its checkpoints is under way."""
        self._attempt = attempt
        self._is_source = is_source
        self._stops_world = stops_world
        self._state = LifeCycle.CREATED
        self._checkpoints = SubtaskCheckpoints()
        self._committed = 0
        self._completed = 0  # the newest checkpoint, savepoints apart, that this subtask knows to be complete
        self._reached_sink = False
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)
        self._handlers: dict[type[Any], Callable[[Any, int], list[do.Effect]]] = {
            on.Started: self._started,
            on.Opened: self._opened,
            on.ElementProcessed: self._element_processed,
            on.SinkReached: self._sink_reached,
            on.TriggerReceived: self._trigger,
            on.BarrierAligned: self._aligned,
            on.BarrierOvertook: self._overtook,
            on.AlignmentLost: self._alignment_lost,
            on.SnapshotTaken: self._snapshot_taken,
            on.SnapshotFailed: self._snapshot_failed,
            on.UploadDone: self._upload_done,
            on.UploadFailed: self._upload_failed,
            on.CompleteReceived: self._complete,
            on.AbortReceived: self._abort,
            on.CommitDone: self._commit_done,
            on.InputExhausted: self._input_exhausted,
            on.Flushed: self._flushed,
            on.CancelRequested: self._cancel,
            on.Failed: self._failed,
            on.Closed: self._closed,
        }

    @property
    def state(self) -> LifeCycle:
        """The present state."""
        return self._state

    @property
    def is_live(self) -> bool:
        """False once it is ending or has ended."""
        return self._state in LIVE

    @property
    def has_reached_sink(self) -> bool:
        """True once this attempt's first rows at a sink were reported."""
        return self._reached_sink

    @property
    def is_halted(self) -> bool:
        """True while nothing may be read, until a checkpoint is complete or given up."""
        return self._stops_world and self._is_source and self._checkpoints.are_under_way

    def handle(self, event: on.Event, now_ms: int) -> list[do.Effect]:
        """Takes one event and says what to do, in order. Raises IllegalTransition for a broken promise of the loop."""
        self._story.append(type(event).__name__)
        return self._handlers[type(event)](event, now_ms)

    # life cycle

    def _started(self, _event: on.Started, _now_ms: int) -> list[do.Effect]:
        if self.is_live:
            self._move(LifeCycle.OPENING)
        return []

    def _opened(self, _event: on.Opened, _now_ms: int) -> list[do.Effect]:
        if not self.is_live:
            return []
        if self._is_source:
            return self._run()
        self._move(LifeCycle.STARTING)
        return []

    def _element_processed(self, _event: on.ElementProcessed, _now_ms: int) -> list[do.Effect]:
        return self._run() if self._state is LifeCycle.STARTING else []

    def _run(self) -> list[do.Effect]:
        self._move(LifeCycle.RUNNING)
        return [do.Report(SubtaskPhase.SUBTASK_RUNNING)]

    def _sink_reached(self, event: on.SinkReached, _now_ms: int) -> list[do.Effect]:
        if self._reached_sink or not self.is_live:
            return []
        self._reached_sink = True
        return [do.ReportFirstRecord(event.unix_us)]

    def _input_exhausted(self, _event: on.InputExhausted, _now_ms: int) -> list[do.Effect]:
        if not self.is_live or self._state in (LifeCycle.FLUSHING, LifeCycle.EXHAUSTED):
            return []
        before = self._run() if self._state is LifeCycle.STARTING else []
        self._move(LifeCycle.FLUSHING)
        return [*before, do.Flush()]

    def _flushed(self, _event: on.Flushed, _now_ms: int) -> list[do.Effect]:
        if not self.is_live:
            return []
        self._move(LifeCycle.EXHAUSTED)
        return [do.ForwardEnd(), do.Report(SubtaskPhase.SUBTASK_EXHAUSTED)]

    def _cancel(self, _event: on.CancelRequested, _now_ms: int) -> list[do.Effect]:
        if not self.is_live:
            return []
        self._move(LifeCycle.CANCELING)
        return [do.Close()]

    def _failed(self, event: on.Failed, _now_ms: int) -> list[do.Effect]:
        if not self.is_live:
            return []
        self._move(LifeCycle.FAILING)
        return [do.Report(SubtaskPhase.SUBTASK_FAILED, event.cause, event.error, event.place), do.Close()]

    def _closed(self, _event: on.Closed, _now_ms: int) -> list[do.Effect]:
        if self._state is LifeCycle.CANCELING:
            self._move(LifeCycle.CANCELED)
            return [do.Report(SubtaskPhase.SUBTASK_CANCELED)]
        self._move(LifeCycle.FAILED)
        return []

    # checkpoints

    def _trigger(self, event: on.TriggerReceived, now_ms: int) -> list[do.Effect]:
        if event.attempt != self._attempt or not self.is_live or not self._is_source:
            return []
        number = event.barrier.checkpoint_id
        if not self._checkpoints.is_new(number):
            return []
        if self._state not in _TAKES_BARRIERS:
            self._checkpoints.abort(number)
            return [do.Decline(number, f"the source is still {self._state.value}")]
        return self._begin(event.barrier, now_ms, now_ms, frozenset() if event.barrier.unaligned else None)

    def _overtook(self, event: on.BarrierOvertook, now_ms: int) -> list[do.Effect]:
        if self._state not in _TAKES_BARRIERS or not self._checkpoints.is_new(event.barrier.checkpoint_id):
            return []
        before = self._run() if self._state is LifeCycle.STARTING else []
        return [*before, *self._begin(event.barrier, event.started_ms, now_ms, event.delivered)]

    def _aligned(self, event: on.BarrierAligned, now_ms: int) -> list[do.Effect]:
        if self._state not in _TAKES_BARRIERS or not self._checkpoints.is_new(event.barrier.checkpoint_id):
            return []
        before = self._run() if self._state is LifeCycle.STARTING else []
        return [*before, *self._begin(event.barrier, event.started_ms, now_ms)]

    def _begin(
        self, barrier: Barrier, started_ms: int, now_ms: int, delivered: frozenset[int] | None = None
    ) -> list[do.Effect]:
        self._checkpoints.begin(barrier, max(0, now_ms - started_ms), delivered)
        base_id = max(self._completed, barrier.completed_id) if barrier.completed_id else 0
        is_savepoint = barrier.kind is CheckpointKind.SAVEPOINT
        return [do.TakeSnapshot(barrier.checkpoint_id, base_id, is_savepoint)]

    def _alignment_lost(self, event: on.AlignmentLost, _now_ms: int) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.is_new(event.checkpoint_id):
            return []
        self._checkpoints.abort(event.checkpoint_id)
        return [do.Decline(event.checkpoint_id, event.reason)]

    def _snapshot_taken(self, event: on.SnapshotTaken, _now_ms: int) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.at(event.checkpoint_id, CheckpointPhase.FREEZING):
            return []
        checkpoint = self._checkpoints.advance(event.checkpoint_id, CheckpointPhase.UPLOADING, event.sync_us)
        before: list[do.Effect] = []
        if checkpoint.delivered is not None:
            before.append(do.RecordChannels(event.checkpoint_id, checkpoint.delivered))
        return [*before, do.ForwardBarrier(checkpoint.barrier), do.StartUpload(event.checkpoint_id)]

    def _snapshot_failed(self, event: on.SnapshotFailed, _now_ms: int) -> list[do.Effect]:
        return self._give_up(event.checkpoint_id, CheckpointPhase.FREEZING, event.reason)

    def _upload_done(self, event: on.UploadDone, _now_ms: int) -> list[do.Effect]:
        known = self._checkpoints.at(event.checkpoint_id, CheckpointPhase.UPLOADING)
        if known is None or not self.is_live:
            return []
        self._checkpoints.advance(event.checkpoint_id, CheckpointPhase.ACKED)
        return [do.Acknowledge(event.checkpoint_id, event.state, known.sync_us, event.async_ms, known.alignment_ms)]

    def _upload_failed(self, event: on.UploadFailed, _now_ms: int) -> list[do.Effect]:
        return self._give_up(event.checkpoint_id, CheckpointPhase.UPLOADING, event.reason, event.is_storage)

    def _give_up(
        self, checkpoint_id: int, phase: CheckpointPhase, reason: str, is_storage: bool = False
    ) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.at(checkpoint_id, phase):
            return []
        self._checkpoints.abort(checkpoint_id)
        return [do.Decline(checkpoint_id, reason, is_storage)]

    def _complete(self, event: on.CompleteReceived, _now_ms: int) -> list[do.Effect]:
        if event.attempt != self._attempt or not self.is_live or event.checkpoint_id <= self._committed:
            return []
        if not self._checkpoints.at(event.checkpoint_id, CheckpointPhase.ACKED):
            return []  # it cannot be complete without this subtask's ack: not a checkpoint of ours
        known = self._checkpoints.advance(event.checkpoint_id, CheckpointPhase.COMMITTING)
        if known.barrier.kind is not CheckpointKind.SAVEPOINT:
            self._completed = max(self._completed, event.checkpoint_id)
        dropped: list[do.Effect] = [
            do.DropSnapshot(number) for number in self._checkpoints.forget_before(event.checkpoint_id)
        ]
        return [*dropped, do.Commit(event.checkpoint_id)]

    def _commit_done(self, event: on.CommitDone, _now_ms: int) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.at(event.checkpoint_id, CheckpointPhase.COMMITTING):
            return []
        self._checkpoints.forget(event.checkpoint_id)
        self._committed = event.checkpoint_id
        return [do.ReportCommitted(event.checkpoint_id)]

    def _abort(self, event: on.AbortReceived, _now_ms: int) -> list[do.Effect]:
        if event.attempt != self._attempt or not self.is_live:
            return []
        if self._checkpoints.at(event.checkpoint_id, CheckpointPhase.COMMITTING):
            return []
        late: list[do.Effect] = []
        if self._checkpoints.at(event.checkpoint_id, CheckpointPhase.UPLOADING):
            late.append(do.Decline(event.checkpoint_id, "its snapshot was still being stored", is_storage=True))
        self._checkpoints.abort(event.checkpoint_id)
        return [*late, do.StopAlignment(event.checkpoint_id), do.DropSnapshot(event.checkpoint_id)]

    def _move(self, state: LifeCycle) -> None:
        if state not in ALLOWED[self._state]:
            story = " > ".join(self._story)
            raise IllegalTransition(f"{self._state.value} -> {state.value} is not allowed; events: {story}")
        self._state = state
