"""The part of a JobMaster that clients steer: cancel, savepoint, stop, rescale. See orders.py for the last two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from lockgate_proto.messages import AttemptRecord, CheckpointMode, CheckpointOptions, DrainSources, JobGraph, JobState

from coordinator.checkpoint.coordinator import CheckpointCoordinator
from coordinator.checkpoint.events import CheckpointEvent, Draining, LastOneDropped, SavepointRequested
from coordinator.checkpoint.final import FinalCheckpoint, Purpose
from coordinator.recovery import effects, events
from coordinator.recovery.attempt import Attempt, AttemptFailed
from coordinator.recovery.effects import Effect
from coordinator.recovery.ending import Ending
from coordinator.recovery.in_flight import holds_in_flight
from coordinator.recovery.orders import OWN_SNAPSHOT, Drain, OrderEffect, Orders, Restart, Situation
from coordinator.recovery.takeover import Takeover

_NOT_YET = "The job is not ready for that; ask again once it runs."


class Steered(ABC):
    """What a JobMaster does for its clients."""

    _graph: JobGraph
    _options: CheckpointOptions
    _state: JobState
    _orders: Orders
    _takeover: Takeover | None
    _snapshots: CheckpointCoordinator | None
    _attempt: Attempt | None
    _attempt_number: int
    _ending: Ending | None
    _cancel_wanted: bool
    _is_planned: bool
    _restart_at_ms: int
    _message: str
    _out: list[Effect]

    @abstractmethod
    def _move(self, state: JobState, now_ms: int) -> None: ...

    @abstractmethod
    def _end(
        self,
        outcome: str,
        error: str,
        now_ms: int,
        *,
        keep_all: bool = False,
        failed: AttemptFailed | None = None,
        stopped_with: int = 0,
    ) -> None: ...

    @abstractmethod
    def _tear_down(self, reason: str, now_ms: int, lost: str = "") -> None: ...

    @abstractmethod
    def _to_snapshots(self, event: CheckpointEvent, now_ms: int) -> None: ...

    @abstractmethod
    def _request_slots(self, now_ms: int, grace_ms: int = 0) -> None: ...

    @abstractmethod
    def _attempt_record(self) -> AttemptRecord: ...

    def _client_handlers(self) -> dict[type[Any], Callable[[Any, int], None]]:
        return {
            events.CancelRequested: self._on_cancel,
            events.SavepointRequested: self._on_savepoint,
            events.RescaleRequested: self._on_rescale,
            events.StopRequested: self._on_stop,
            events.OrdersPersisted: self._on_orders_persisted,
            events.DisposalBegun: self._on_disposal,
            events.SavepointDisposed: self._on_disposed,
        }

    @property
    def is_ending(self) -> bool:
        """Its end is decided, and what outlives it may be, too."""
        return self._ending is not None

    def _answer_late(self, event: events.Event) -> None:
        """A client's wish that comes when the job has ended."""
        if isinstance(event, events.SavepointRequested):
            self._answer_savepoint(event.request_id, "The job has ended.")
        elif isinstance(event, events.StopRequested):
            self._out.append(effects.AnswerSavepoint(event.request_id, error="The job has ended."))
        elif isinstance(event, events.RescaleRequested):
            self._out.append(effects.AnswerRescale(event.request_id, error="The job has ended."))

    def _on_cancel(self, _event: events.CancelRequested, now_ms: int) -> None:
        self._cancel_wanted = True
        if self._takeover is not None and self._ending is None:
            self._cancel(now_ms)

    def _cancel(self, now_ms: int, *, keep_all: bool = False) -> None:
        self._move(JobState.CANCELING, now_ms)
        self._end("CANCELED", "", now_ms, keep_all=keep_all)

    def _on_savepoint(self, event: events.SavepointRequested, now_ms: int) -> None:
        if self._snapshots is None or self._ending is not None:
            self._answer_savepoint(event.request_id, "A savepoint needs a running job; ask again once it runs.")
        else:
            self._to_snapshots(event, now_ms)

    def _answer_savepoint(self, request_id: str, error: str) -> None:
        """Of a job that takes no more savepoints: the one that there is for the request, or why there is none."""
        known = self._snapshots.completed.answer_to(request_id) if self._snapshots is not None else None
        self._out.append(effects.AnswerSavepoint(request_id, known, "" if known is not None else error))

    def _on_rescale(self, event: events.RescaleRequested, now_ms: int) -> None:
        if self._snapshots is None or self._ending is not None:
            self._out.append(effects.AnswerRescale(event.request_id, error=_NOT_YET))
        else:
            self._obey(self._orders.rescale(event, self._situation(now_ms), now_ms), now_ms)

    def _on_stop(self, event: events.StopRequested, now_ms: int) -> None:
        if self._snapshots is None or self._ending is not None:
            self._out.append(effects.AnswerSavepoint(event.request_id, error=_NOT_YET))
        else:
            self._obey(self._orders.stop_requested(event, self._situation(now_ms), now_ms), now_ms)

    def _on_orders_persisted(self, event: events.OrdersPersisted, now_ms: int) -> None:
        self._obey(self._orders.written(event.orders, now_ms), now_ms)

    def _on_own_snapshot(self, answer: effects.AnswerSavepoint, now_ms: int) -> None:
        """The snapshot for an order is complete, or there will be none."""
        assert answer.request_id == OWN_SNAPSHOT
        lives = self._attempt is not None
        self._obey(self._orders.snapshot_answered(answer, lives, self._situation(now_ms), now_ms), now_ms)

    def _on_disposal(self, event: events.DisposalBegun, _now_ms: int) -> None:
        if self._snapshots is not None:
            self._snapshots.completed.dispose(event.checkpoint_id)

    def _on_disposed(self, event: events.SavepointDisposed, _now_ms: int) -> None:
        if self._snapshots is not None:
            self._snapshots.completed.forget(event.checkpoint_id)

    def _proceed_orders(self, now_ms: int) -> None:
        if self._ending is None and self._snapshots is not None:
            self._obey(self._orders.proceed(self._situation(now_ms), now_ms), now_ms)

    def _situation(self, now_ms: int) -> Situation:
        assert self._snapshots is not None
        completed = self._snapshots.completed
        begun_ms = self._snapshots.newest_triggered_ms
        age_ms = now_ms - begun_ms if begun_ms is not None else None
        overtakes = self._options.mode is CheckpointMode.UNALIGNED or holds_in_flight(completed.restore_point)
        restore, places = completed.restore_point, self._attempt_record().task_manager_ids
        final, begun_id = self._snapshots.final, self._snapshots.newest_begun_id
        return Situation(self._state, final, completed.newest, begun_id, age_ms, overtakes, restore, places)

    def _obey(self, wanted: Sequence[OrderEffect], now_ms: int) -> None:
        for one in wanted:
            if isinstance(one, Restart):
                self._restart_reshaped(now_ms)
            elif isinstance(one, Drain):
                self._drain(now_ms)
            elif isinstance(one, SavepointRequested | LastOneDropped):
                self._to_snapshots(one, now_ms)
            elif isinstance(one, effects.AnswerRescale) and one.restarts:
                self._out.append(effects.AnswerRescale(one.request_id, one.parallelism, after=self._attempt_number))
            else:
                self._out.append(one)

    def _restart_reshaped(self, now_ms: int) -> None:
        """The orders are durable. Whatever runs is replaced; what waits for slots asks for another number."""
        self._graph = self._orders.graph
        if self._ending is not None:
            return
        if self._attempt is not None:
            self._restart("the job goes on at another parallelism", now_ms)
            self._is_planned = True
        elif self._state is JobState.WAITING_FOR_SLOTS:
            self._request_slots(now_ms)

    def _restart(self, reason: str, now_ms: int, lost: str = "", delay_ms: int = 0) -> None:
        """The next attempt comes as soon as nothing is in doubt and the delay is over."""
        self._tear_down(reason, now_ms, lost)
        self._move(JobState.RESTARTING, now_ms)
        self._restart_at_ms = now_ms + delay_ms
        self._message = f"{reason}; the next attempt comes {delay_ms} ms after that"

    def _drain(self, now_ms: int) -> None:
        attempt = self._attempt
        if attempt is not None:
            names = attempt.execution.source_task_managers()
            self._out += [effects.Send(name, DrainSources(attempt.id)) for name in names]
            self._to_snapshots(Draining(), now_ms)

    def _proceed_final(self, attempt: Attempt, final: FinalCheckpoint, now_ms: int) -> None:
        """Ends the job once every subtask has shown what the checkpoint that ends it holds."""
        if not final.ends_job:
            return
        deadline_ms = now_ms + self._options.timeout_ms
        if not final.was_restored and not attempt.await_commits(final.checkpoint_id, deadline_ms):
            return
        stopped_with = self._orders.stopped_with(final)
        if final.purpose is Purpose.STOP:  # its sources read on, and nothing of that will ever be shown
            self._tear_down("the job is stopped", now_ms)
        if self._state is JobState.RUNNING:
            self._move(JobState.FINISHING, now_ms)
        self._end("FINISHED", "", now_ms, stopped_with=stopped_with)
