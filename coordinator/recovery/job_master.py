"""One job under one leader: from the grant to the job's end or the leader's.

Composes what the leader found (takeover.py), the attempt (attempt.py), the checkpoints (checkpoint/coordinator.py),
the restart strategy (restart.py), the records to write (record_writer.py) and the end (closing.py). The states and
their drawing are in job_state.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from lockgate_proto.messages import (
    AttemptId,
    CancelAttempt,
    CheckpointOptions,
    CompletedCheckpoint,
    FailureCause,
    JobEvent,
    JobEventKind,
    JobFailure,
    JobGraph,
    JobRecord,
    JobState,
    JobStatus,
    NoRestart,
    PrepareJob,
)

from coordinator.checkpoint.coordinator import CheckpointCoordinator
from coordinator.checkpoint.effects import TooManyFailures
from coordinator.checkpoint.events import AttemptRunning, CheckpointEvent, InputExhausted
from coordinator.graph.normalize import normalize
from coordinator.graph.shape import slots_needed, vertex_shapes
from coordinator.graph.story import Story
from coordinator.recovery import effects, events
from coordinator.recovery.announce import Announcement, announce
from coordinator.recovery.at_work import AtWork
from coordinator.recovery.attempt import Attempt, AttemptEvent, AttemptFailed
from coordinator.recovery.backoff import Backoff
from coordinator.recovery.closing import Closing
from coordinator.recovery.counters import JobCounters
from coordinator.recovery.deploy_size import DeployTooLarge
from coordinator.recovery.effects import Effect
from coordinator.recovery.ending import Ending
from coordinator.recovery.events import Event
from coordinator.recovery.in_flight import InFlightMisfit
from coordinator.recovery.job_state import ALLOWED
from coordinator.recovery.orders import OWN_SNAPSHOT, Orders
from coordinator.recovery.provenance import attempt_of, believed
from coordinator.recovery.record_writer import RecordWriter
from coordinator.recovery.recurrence import ENOUGH, Recurrence, job_failure, verdict
from coordinator.recovery.redistribute import SourceStateUnreadable, counted
from coordinator.recovery.restart import GiveUp, RestartPolicy
from coordinator.recovery.splits import TooManyPartitions
from coordinator.recovery.stale import StaleAttempt
from coordinator.recovery.takeover import Takeover
from coordinator.recovery.view import job_status, waits_for

RECOVERY_GRACE_MS = 500
"""A new leader waits so long for the task managers of the last attempt to register."""


class JobMaster(Closing):
    """One job under one leader; made after a grant, dropped with it or after the effect CleanUp.

    The first event is Recovered or RecoveryFailed. Pure: no I/O, clock, thread.
    """

    def __init__(
        self,
        record: JobRecord,
        graph: JobGraph,
        *,
        token: int,
        checkpoint_directory: str,
        unix_offset_ms: int = 0,
    ) -> None:
        """record: as stored under /jobs/<key>/graph. graph: decoded from it; normalized here.

        token: of the grant. checkpoint_directory: URI `<storage>/<cluster>/<job_key>/<run_id>`.
        unix_offset_ms: wall clock minus monotonic clock, for display fields only.
        """
        self._record = record
        self._graph = normalize(graph)
        self._options = self._graph.checkpoints or CheckpointOptions()
        self._token = token
        self._directory = checkpoint_directory
        self._unix_offset_ms = unix_offset_ms
        self._state = JobState.WAITING_FOR_SLOTS
        self._story = Story(f"job {record.job_key} under token {token}")
        strategy = self._graph.restart.strategy if self._graph.restart is not None else None
        self._policy = RestartPolicy(strategy or NoRestart())
        self._counters = JobCounters(self._graph)
        self._writer = RecordWriter(record.job_key)
        self._orders = Orders(record.job_key, self._graph)
        self._make_watch()
        self._is_planned = False  # the next attempt comes of an order, not of a failure
        self._takeover: Takeover | None = None
        self._snapshots: CheckpointCoordinator | None = None
        self._stale = StaleAttempt(record, None)
        self._attempt: Attempt | None = None
        self._attempt_number = 0
        self._restarts = 0
        self._places: tuple[str, ...] = ()  # task manager of slot i in the newest attempt
        self._request = 0
        self._restart_at_ms = 0
        self._backoff = Backoff()
        self._wake_ms: int | None = None
        self._ending: Ending | None = None
        self._ended_ms: int | None = None
        self._cancel_wanted = record.cancel_requested
        self._suspended = False
        self._message = "the leader reads the job's records"
        self._error = ""
        self._failure: JobFailure | None = None
        self._recurrence = Recurrence()
        self._at_work = AtWork()
        self._out: list[Effect] = []
        self._handlers = self._handler_table()

    def _handler_table(self) -> dict[type[Any], Callable[[Any, int], None]]:
        return {
            events.Recovered: self._on_recovered,
            events.RecoveryFailed: self._on_recovery_failed,
            events.SlotsOffered: self._on_slots,
            events.SlotsMissing: self._on_slots_missing,
            events.AttemptPersisted: self._on_attempt_persisted,
            events.ResultPersisted: self._on_result_persisted,
            events.PersistFailed: self._on_persist_failed,
            events.TaskManagerLost: self._on_task_manager_lost,
            events.StillRunning: self._on_still_running,
            events.Reported: self._to_attempt,
            events.FirstRecordSeen: self._to_attempt,
            events.SplitsFound: self._to_attempt,
            events.Committed: self._to_attempt,
            events.Gone: self._on_gone,
            events.Said: self._on_said,
            events.CountersReported: self._on_counters,
            **self._client_handlers(),
            events.Suspended: self._on_suspended,
            events.Resumed: self._on_suspended,
            events.Tick: self._on_tick,
        }

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The one entrance. now_ms: monotonic. Raises IllegalTransition on a fault of this code only."""
        self._out = []
        if self._ended_ms is not None:
            self._answer_late(event)
            return self._out
        self._handlers.get(type(event), self._to_snapshots)(event, now_ms)
        self._proceed(now_ms)
        wake_ms = self._next_wake_ms() if self._ended_ms is None else None
        if wake_ms is not None and (wake_ms != self._wake_ms or isinstance(event, events.Tick)):
            self._out.append(effects.WakeAt(wake_ms))
        self._wake_ms = wake_ms
        return self._out

    def status(self) -> JobStatus:
        """What clients see; `leader_address` is left to the runtime."""
        ended = self._ended_ms is not None
        flags = {"suspended": self._suspended, "ending": self._ending is not None}
        trouble = self._snapshots.storage_trouble if self._snapshots is not None else None
        return job_status(
            self._record,
            self._graph.name,
            self._state,
            message="" if ended else waits_for(self._state, self._attempt, self._message, trouble, **flags),
            error=self._error,
            failure=self._failure,
            ended_unix_ms=self._ended_ms + self._unix_offset_ms if self._ended_ms is not None else 0,
            newest=self._attempt_record(),
            attempt=self._attempt,
            snapshots=self._snapshots,
            counters=self._counters,
            mode=self._options.mode,
            straggler=self._straggler_text,
        )

    @property
    def knows_checkpoints(self) -> bool:
        """False while the job's snapshots cannot be read."""
        return self._snapshots is not None

    def checkpoints(self) -> tuple[CompletedCheckpoint, ...]:
        """Completed checkpoints and savepoints, newest first, `metadata` empty."""
        return self._snapshots.completed.all() if self._snapshots is not None else ()

    def preparation(self) -> PrepareJob | None:
        """What task managers with free slots (their number is to be filled in) may prepare for; None unless it runs."""
        if self._state is not JobState.RUNNING or self._attempt is None:
            return None
        return PrepareJob(self._attempt.id, self._graph)

    @property
    def ended(self) -> bool:
        """True from ResultPersisted on: the job is FINISHED, FAILED or CANCELED for good."""
        return self._ended_ms is not None

    # recovery

    def _on_recovered(self, event: events.Recovered, now_ms: int) -> None:
        if self._takeover is not None:
            return
        takeover = self._take_over(event, now_ms)
        if event.attempt is not None:
            restored_id = takeover.metadata.checkpoint_id if takeover.metadata is not None else 0
            text = f"goes on from checkpoint {restored_id}" if restored_id else "starts from the beginning"
            self._emit(JobEventKind.JOB_RECOVERED, text, restored_id)
        if self._cancel_wanted:
            self._cancel(now_ms)
        elif (problem := takeover.problem()) is not None:
            self._end("FAILED", problem, now_ms, keep_all=True)
        else:
            self._counters.restore(counted(self._graph, takeover.metadata).values())
            self._request_slots(now_ms, RECOVERY_GRACE_MS)

    def _on_recovery_failed(self, event: events.RecoveryFailed, now_ms: int) -> None:
        if self._takeover is not None:
            return
        self._error = event.reason
        if self._cancel_wanted:
            self._take_over(event, now_ms)
            self._cancel(now_ms, keep_all=True)
        elif not event.retryable:
            self._take_over(event, now_ms)
            self._end("FAILED", event.reason, now_ms, keep_all=True)
        else:
            pause_ms = self._backoff.failed(now_ms)
            self._message = f"the snapshot cannot be read, next try after {pause_ms} ms: {event.reason}"

    def _take_over(self, event: events.Recovered | events.RecoveryFailed, now_ms: int) -> Takeover:
        self._stale = StaleAttempt(self._record, event.attempt)
        if event.attempt is not None:
            self._attempt_number, self._restarts = event.attempt.attempt, event.attempt.restarts
            self._places = event.attempt.task_manager_ids
            self._restore_moves(event.attempt, now_ms)
        if isinstance(event, events.Recovered):
            self._orders.recovered(event.orders, now_ms)
            self._graph = self._orders.graph
        self._takeover = Takeover(
            self._record,
            self._graph,
            event,
            token=self._token,
            directory=self._directory,
            unix_offset_ms=self._unix_offset_ms,
        )
        self._snapshots = self._takeover.coordinator
        if self._suspended:
            self._to_snapshots(events.Suspended(), now_ms)
        return self._takeover

    # slots and deployment

    def _request_slots(self, now_ms: int, grace_ms: int = 0) -> None:
        self._request += 1
        needed = slots_needed(self._graph)
        self._message = f"needs {needed} slots"
        avoided = self._avoided(now_ms)
        self._out.append(effects.RequestSlots(self._request, needed, self._places, grace_ms, avoided))

    def _on_slots_missing(self, event: events.SlotsMissing, now_ms: int) -> None:
        if self._state is JobState.WAITING_FOR_SLOTS and event.request == self._request:
            needed = slots_needed(self._graph)
            self._message = f"needs {needed} slots, {event.free_slots} free in {event.task_managers} task managers"
            self._story.note(self._message, now_ms)

    def _on_slots(self, event: events.SlotsOffered, now_ms: int) -> None:
        waiting = self._state is JobState.WAITING_FOR_SLOTS and self._ending is None
        if not waiting or event.request != self._request or len(event.slots) < slots_needed(self._graph):
            return
        if self._attempt_number and not self._is_planned:
            self._restarts += 1
        self._is_planned = False
        self._attempt_number += 1
        attempt = AttemptId(self._record.job_key, self._record.run_id, self._attempt_number)
        self._attempt = Attempt(self._graph, attempt, event.slots, self._token)
        self._places = tuple(slot.task_manager_id for slot in event.slots)
        self._at_work.clear()
        self._move(JobState.DEPLOYING, now_ms)
        self._message = "its attempt record is being written"
        self._writer.want(effects.PersistAttempt(self._attempt_record()), now_ms)

    def _on_attempt_persisted(self, event: events.AttemptPersisted, now_ms: int) -> None:
        attempt = self._attempt
        if attempt is None or attempt.deployed_ms is not None or event.attempt != attempt.id.attempt:
            return
        assert self._snapshots is not None  # it was there before the attempt
        self._writer.drop(now_ms)
        metadata = self._snapshots.completed.restore_point
        try:
            sends = attempt.deploy(metadata, self._directory, now_ms)
        except (SourceStateUnreadable, InFlightMisfit, DeployTooLarge, TooManyPartitions) as error:  # snapshots stay
            self._fail(AttemptFailed(FailureCause.STATE_UNREADABLE, str(error)), now_ms)
            return
        self._out += self._stale.cancel("replaced by a new attempt", attempt.execution.task_managers())
        self._counters.restore(counted(self._graph, metadata).values())
        self._out += sends

    def _on_persist_failed(self, event: events.PersistFailed, now_ms: int) -> None:
        if event.kind is events.PersistKind.ORDERS:
            self._orders.writer.failed(now_ms)
            return
        kind = effects.PersistAttempt if event.kind is events.PersistKind.ATTEMPT else effects.PersistResult
        abandoned = event.attempt not in (0, self._attempt_number)
        if isinstance(self._writer.wanted, kind) and not abandoned:
            self._writer.failed(now_ms)
            self._message = f"the {event.kind.value} record could not be written, next try soon: {event.reason}"

    # what task managers report

    def _on_said(self, event: events.Said, now_ms: int) -> None:
        """Only what comes from where it happens counts; of an attempt that was torn down, only its end."""
        report, execution = event.report, self._attempt.execution if self._attempt is not None else None
        if execution is not None:
            counts = believed(report, event.task_manager_id, execution)
            if counts is None and attempt_of(report) == execution.attempt:
                self._story.note(f"{event.task_manager_id} sent a {type(report).__name__} of others: ignored", now_ms)
        else:
            counts = report if isinstance(report, events.Gone) else None
        if counts is not None:
            self._handlers.get(type(counts), self._to_snapshots)(counts, now_ms)

    def _to_attempt(self, event: AttemptEvent, now_ms: int) -> None:
        if self._last_commit is not None and not isinstance(event, events.Tick):
            self._out += self._last_commit.handle(event, now_ms)
        if self._attempt is None or self._ending is not None:
            return
        for effect in self._attempt.handle(event, now_ms):
            if isinstance(effect, AttemptFailed):
                self._fail(effect, now_ms)
            else:
                self._out.append(effect)

    def _on_task_manager_lost(self, event: events.TaskManagerLost, now_ms: int) -> None:
        self._places = tuple("" if name == event.task_manager_id else name for name in self._places)
        self._forget_place(event.task_manager_id)
        if self._ending is not None:
            self._ending.stopped(event.task_manager_id)
        self._to_attempt(event, now_ms)

    def _on_gone(self, event: events.Gone, now_ms: int) -> None:
        gone = event.gone.attempt
        if self._ending is not None and gone is not None and gone.attempt == self._attempt_number:
            self._ending.stopped(event.task_manager_id)
        self._to_attempt(event, now_ms)

    def _on_still_running(self, event: events.StillRunning, now_ms: int) -> None:
        attempt = self._attempt
        if self._takeover is None or (attempt is not None and event.attempt == attempt.id):
            return  # nothing is decided yet, or nothing is wrong
        used = attempt is not None and event.task_manager_id in attempt.execution.task_managers()
        if self._ending is None and (used or self._stale.covers(event.task_manager_id, event.attempt)):
            return  # the next Deploy replaces it, or is preceded by its cancellation
        self._story.note(f"{event.task_manager_id} still runs attempt {event.attempt.attempt}", now_ms)
        body = CancelAttempt(attempt=event.attempt, reason="this attempt is over")
        self._out.append(effects.Send(event.task_manager_id, body))

    def _on_tick(self, event: events.Tick, now_ms: int) -> None:
        self._to_snapshots(event, now_ms)
        self._to_attempt(event, now_ms)

    # clients and ZooKeeper

    def _on_suspended(self, event: events.Suspended | events.Resumed, now_ms: int) -> None:
        self._suspended = isinstance(event, events.Suspended)
        for writer in (self._writer, self._orders.writer):
            writer.suspend(self._suspended, now_ms)
        self._to_snapshots(event, now_ms)

    # checkpoints

    def _to_snapshots(self, event: CheckpointEvent, now_ms: int) -> None:
        if self._snapshots is None:
            return
        too_many: str | None = None
        for effect in self._snapshots.handle(event, now_ms):
            if isinstance(effect, TooManyFailures):
                too_many = effect.reason
            elif isinstance(effect, Announcement):
                self._out += announce(effect, self._attempt, self._token)
            elif isinstance(effect, effects.AnswerSavepoint) and effect.request_id == OWN_SNAPSHOT:
                self._on_own_snapshot(effect, now_ms)
            else:
                self._out.append(effect)
        if too_many is not None:
            if self._attempt is not None and (busy := self._at_work.sentence(self._attempt.execution.task_manager_of)):
                too_many = f"{too_many}. {busy}"
            self._fail(AttemptFailed(FailureCause.FAULT, too_many), now_ms)

    # failure and end

    def _fail(self, failed: AttemptFailed, now_ms: int) -> None:
        attempt = self._attempt
        if self._ending is not None or attempt is None:
            return
        if failed.blameless:
            self._restart(failed.text, now_ms, failed.lost)
            return
        self._error = failed.text
        times = self._recurrence.noted(failed, attempt.restored_id)
        self._failure = job_failure(failed, self._attempt_number, times)
        self._emit(JobEventKind.ATTEMPT_FAILED, failed.text)
        if failed.cause in (FailureCause.USER_ERROR, FailureCause.STATE_UNREADABLE):
            keep_all = failed.cause is FailureCause.STATE_UNREADABLE
            self._end("FAILED", failed.text, now_ms, keep_all=keep_all, failed=failed)
            return
        if times >= ENOUGH:
            self._end("FAILED", f"{failed.text}\n{verdict(self._failure)}", now_ms, failed=failed)
            return
        ran_ms = now_ms - attempt.running_ms if attempt.running_ms is not None else 0
        noise = crc32(f"{self._record.run_id}/{self._attempt_number}".encode()) / 2**32
        decided = self._policy.failed(now_ms, ran_ms, noise)
        if isinstance(decided, GiveUp):
            self._end("FAILED", f"{failed.text}\n{decided.reason}", now_ms, failed=failed)
            return
        self._restart(failed.text, now_ms, failed.lost, decided.delay_ms)

    # what is due now

    def _proceed(self, now_ms: int) -> None:
        """Everything that may go on because of what has just happened, or because time has passed."""
        if self._backoff.take_due(now_ms):
            self._out.append(effects.Recover())
        snapshots = self._snapshots
        if snapshots is None:
            return
        if self._attempt is not None and self._ending is None:
            self._proceed_attempt(self._attempt, snapshots, now_ms)
        if self._ending is not None:
            self._proceed_ending(self._ending, snapshots, now_ms)
        elif now_ms >= self._restart_at_ms and self._may_restart(snapshots):
            self._move(JobState.WAITING_FOR_SLOTS, now_ms)
            self._request_slots(now_ms)
        self._out += [*self._writer.due(now_ms), *self._orders.writer.due(now_ms)]

    def _may_restart(self, snapshots: CheckpointCoordinator) -> bool:
        """Nothing is in doubt that the next attempt depends on."""
        return self._state is JobState.RESTARTING and not snapshots.settling and not self._orders.reshapes

    def _proceed_attempt(self, attempt: Attempt, snapshots: CheckpointCoordinator, now_ms: int) -> None:
        starting = self._state is JobState.DEPLOYING and attempt.deployed_ms is not None
        if starting and attempt.execution.all_started:
            attempt.running_ms = now_ms
            self._move(JobState.RUNNING, now_ms)
            self._watch_running(now_ms)
            self._emit(JobEventKind.ATTEMPT_DEPLOYED, f"all {len(attempt.execution.subtasks)} subtasks run")
            completed = snapshots.completed
            is_terminal = completed.restore_point is not None and completed.restore_point.terminal
            stopped_with = self._orders.carried_out_by(completed.newest, is_terminal)
            shapes = vertex_shapes(self._graph)
            running = AttemptRunning(attempt.id, attempt.execution.subtasks, shapes, stopped_with)
            self._to_snapshots(running, now_ms)
            if self._takeover is not None:
                self._out += self._takeover.leftovers()
        if self._state is JobState.RUNNING and attempt.execution.all_exhausted:
            self._move(JobState.FINISHING, now_ms)
            self._to_snapshots(InputExhausted(is_savepoint=self._orders.stop is not None), now_ms)
        self._proceed_orders(now_ms)
        if self._attempt is attempt and self._ending is None:  # an order may have restarted the job
            self._proceed_final(attempt, snapshots.final, now_ms)

    def _next_wake_ms(self) -> int | None:
        times = [self._writer.next_wake_ms(), self._orders.writer.next_wake_ms(), self._backoff.next_wake_ms()]
        snapshots = self._snapshots
        if snapshots is not None:
            times.append(snapshots.next_wake_ms())
        if self._ending is not None:
            times += self._ending_wakes()
        elif self._attempt is not None:
            times.append(self._attempt.next_wake_ms())
        elif snapshots is not None and self._may_restart(snapshots):
            times.append(self._restart_at_ms)
        return min((at for at in times if at is not None), default=None)

    # small change

    def _move(self, state: JobState, now_ms: int) -> None:
        self._state = self._story.move(ALLOWED, self._state, state, now_ms)
        self._emit(JobEventKind.STATE_CHANGED, state.name)

    def _emit(self, kind: JobEventKind, text: str, checkpoint_id: int = 0) -> None:
        attempt, token = self._attempt_number, self._token
        event = JobEvent(kind, attempt=attempt, checkpoint_id=checkpoint_id, token=token, text=text)
        self._out.append(effects.Emit(event))
