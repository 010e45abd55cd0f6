"""What one subtask does next. Pure: the loop in lockgate_taskmanager.runtime executes the effects.

    CREATED --> OPENING --> STARTING --> RUNNING --> FLUSHING --> EXHAUSTED
                   |    source: straight    ^
                   +------------------------+

    each of these --CancelRequested--> CANCELING --Closed--> CANCELED
    each of these --Failed-----------> FAILING ----Closed--> FAILED

STARTING: open, but no prologue or first element has arrived from upstream yet; sources skip this state. EXHAUSTED still
takes part in checkpoints. A failure while canceling is ignored.

The order is always: freeze, forward the barrier, upload, acknowledge; commit only what was acknowledged here and
reported complete by the leader. An unaligned checkpoint starts recording its input channels between the freeze and the
forwarding, before anything more is taken from them.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from lockgate_common.story import Story
from lockgate_proto.messages import AttemptId, Barrier, CheckpointKind, SubtaskPhase

from lockgate_taskmanager.barrier.events import Aligned, AlignmentAborted, Overtaken
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.checkpoints import CheckpointPhase, SubtaskCheckpoints

STORY_LENGTH = 32


class LifeCycle(Enum):
    """The phase of a subtask's life."""

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

    def __init__(self, attempt: AttemptId, is_source: bool, pauses_source: bool = False) -> None:
        """pauses_source: the source reads nothing while one of its checkpoints is in progress."""
        self._attempt = attempt
        self._is_source = is_source
        self._stops_world = pauses_source
        self._state = LifeCycle.CREATED
        self._checkpoints = SubtaskCheckpoints()
        self._committed = 0
        self._completed = 0  # the newest checkpoint, savepoints excluded, that this subtask knows to be complete
        self._reached_sink = False
        self._story = Story("subtask", STORY_LENGTH)

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
        """True while nothing may be read, until a checkpoint is completed or aborted."""
        return self._stops_world and self._is_source and self._checkpoints.are_under_way

    def handle(self, event: on.Event, now_ms: int) -> list[do.Effect]:  # noqa: C901  one case a kind
        """Handles one event; returns the effects in order.

        Raises IllegalTransition when the loop breaks its contract.
        """
        self._story.note(type(event).__name__)
        match event:
            case on.ElementProcessed():
                return self._element_processed()
            case on.Started():
                return self._started()
            case on.Opened():
                return self._opened()
            case on.SinkReached():
                return self._sink_reached(event)
            case on.TriggerReceived():
                return self._trigger(event, now_ms)
            case Aligned():
                return self._aligned(event, now_ms)
            case Overtaken():
                return self._overtook(event, now_ms)
            case AlignmentAborted():
                return self._alignment_lost(event)
            case on.SnapshotTaken():
                return self._snapshot_taken(event)
            case on.SnapshotFailed():
                return self._snapshot_failed(event)
            case on.UploadDone():
                return self._upload_done(event)
            case on.UploadFailed():
                return self._upload_failed(event)
            case on.CompleteReceived():
                return self._complete(event)
            case on.AbortReceived():
                return self._abort(event)
            case on.CommitDone():
                return self._commit_done(event)
            case on.InputExhausted():
                return self._input_exhausted()
            case on.Flushed():
                return self._flushed()
            case on.CancelRequested():
                return self._cancel()
            case on.Failed():
                return self._failed(event)
            case on.Closed():
                return self._closed()
            case _:
                assert_never(event)

    # life cycle

    def _started(self) -> list[do.Effect]:
        if self.is_live:
            self._move(LifeCycle.OPENING)
        return []

    def _opened(self) -> list[do.Effect]:
        if not self.is_live:
            return []
        if self._is_source:
            return self._run()
        self._move(LifeCycle.STARTING)
        return []

    def _element_processed(self) -> list[do.Effect]:
        return self._run() if self._state is LifeCycle.STARTING else []

    def _run(self) -> list[do.Effect]:
        self._move(LifeCycle.RUNNING)
        return [do.Report(SubtaskPhase.SUBTASK_RUNNING)]

    def _sink_reached(self, event: on.SinkReached) -> list[do.Effect]:
        if self._reached_sink or not self.is_live:
            return []
        self._reached_sink = True
        return [do.ReportFirstRecord(event.unix_us)]

    def _input_exhausted(self) -> list[do.Effect]:
        if not self.is_live or self._state in (LifeCycle.FLUSHING, LifeCycle.EXHAUSTED):
            return []
        before = self._run() if self._state is LifeCycle.STARTING else []
        self._move(LifeCycle.FLUSHING)
        return [*before, do.Flush()]

    def _flushed(self) -> list[do.Effect]:
        if not self.is_live:
            return []
        self._move(LifeCycle.EXHAUSTED)
        return [do.ForwardEnd(), do.Report(SubtaskPhase.SUBTASK_EXHAUSTED)]

    def _cancel(self) -> list[do.Effect]:
        if not self.is_live:
            return []
        self._move(LifeCycle.CANCELING)
        return [do.Close()]

    def _failed(self, event: on.Failed) -> list[do.Effect]:
        if not self.is_live:
            return []
        self._move(LifeCycle.FAILING)
        return [do.Report(SubtaskPhase.SUBTASK_FAILED, event.cause, event.error, event.place), do.Close()]

    def _closed(self) -> list[do.Effect]:
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

    def _overtook(self, event: Overtaken, now_ms: int) -> list[do.Effect]:
        if self._state not in _TAKES_BARRIERS or not self._checkpoints.is_new(event.barrier.checkpoint_id):
            return []
        before = self._run() if self._state is LifeCycle.STARTING else []
        return [*before, *self._begin(event.barrier, event.started_ms, now_ms, event.delivered)]

    def _aligned(self, event: Aligned, now_ms: int) -> list[do.Effect]:
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

    def _alignment_lost(self, event: AlignmentAborted) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.is_new(event.checkpoint_id):
            return []
        self._checkpoints.abort(event.checkpoint_id)
        return [do.Decline(event.checkpoint_id, event.reason)]

    def _snapshot_taken(self, event: on.SnapshotTaken) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.at(event.checkpoint_id, CheckpointPhase.FREEZING):
            return []
        checkpoint = self._checkpoints.advance(event.checkpoint_id, CheckpointPhase.UPLOADING, event.sync_us)
        before: list[do.Effect] = []
        if checkpoint.delivered is not None:
            before.append(do.RecordChannels(event.checkpoint_id, checkpoint.delivered))
        return [*before, do.ForwardBarrier(checkpoint.barrier), do.StartUpload(event.checkpoint_id)]

    def _snapshot_failed(self, event: on.SnapshotFailed) -> list[do.Effect]:
        return self._decline(event.checkpoint_id, CheckpointPhase.FREEZING, event.reason)

    def _upload_done(self, event: on.UploadDone) -> list[do.Effect]:
        known = self._checkpoints.at(event.checkpoint_id, CheckpointPhase.UPLOADING)
        if known is None or not self.is_live:
            return []
        self._checkpoints.advance(event.checkpoint_id, CheckpointPhase.ACKED)
        return [do.Acknowledge(event.checkpoint_id, event.state, known.sync_us, event.async_ms, known.alignment_ms)]

    def _upload_failed(self, event: on.UploadFailed) -> list[do.Effect]:
        return self._decline(event.checkpoint_id, CheckpointPhase.UPLOADING, event.reason, event.is_storage)

    def _decline(
        self, checkpoint_id: int, phase: CheckpointPhase, reason: str, is_storage: bool = False
    ) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.at(checkpoint_id, phase):
            return []
        self._checkpoints.abort(checkpoint_id)
        return [do.Decline(checkpoint_id, reason, is_storage)]

    def _complete(self, event: on.CompleteReceived) -> list[do.Effect]:
        if event.attempt != self._attempt or not self.is_live or event.checkpoint_id <= self._committed:
            return []
        if not self._checkpoints.at(event.checkpoint_id, CheckpointPhase.ACKED):
            return []  # it cannot be complete without this subtask's acknowledgement: not a checkpoint of this attempt
        known = self._checkpoints.advance(event.checkpoint_id, CheckpointPhase.COMMITTING)
        if known.barrier.kind is not CheckpointKind.SAVEPOINT:
            self._completed = max(self._completed, event.checkpoint_id)
        dropped: list[do.Effect] = [
            do.DropSnapshot(number) for number in self._checkpoints.forget_before(event.checkpoint_id)
        ]
        return [*dropped, do.Commit(event.checkpoint_id)]

    def _commit_done(self, event: on.CommitDone) -> list[do.Effect]:
        if not self.is_live or not self._checkpoints.at(event.checkpoint_id, CheckpointPhase.COMMITTING):
            return []
        self._checkpoints.forget(event.checkpoint_id)
        self._committed = event.checkpoint_id
        return [do.ReportCommitted(event.checkpoint_id, event.has_output)]

    def _abort(self, event: on.AbortReceived) -> list[do.Effect]:
        if event.attempt != self._attempt or not self.is_live:
            return []
        if event.and_earlier:
            lost = self._checkpoints.abort_up_to(event.checkpoint_id)
            return [do.StopAlignment(event.checkpoint_id, and_earlier=True), *map(do.DropSnapshot, lost)]
        if self._checkpoints.at(event.checkpoint_id, CheckpointPhase.COMMITTING):
            return []
        late: list[do.Effect] = []
        if self._checkpoints.at(event.checkpoint_id, CheckpointPhase.UPLOADING):
            late.append(do.Decline(event.checkpoint_id, "its snapshot was still being stored", is_storage=True))
        self._checkpoints.abort(event.checkpoint_id)
        return [*late, do.StopAlignment(event.checkpoint_id), do.DropSnapshot(event.checkpoint_id)]

    def _move(self, state: LifeCycle) -> None:
        self._state = self._story.move(ALLOWED, self._state, state)
