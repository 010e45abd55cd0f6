"""One job under one leader: from the grant to the job's end or the leader's.

Dispatches events to the parts of a job, and carries out their answers. Each part has its own state: restore.py (what
the leader found), job_attempts.py (the current and the next attempt), restart.py and extent.py (what follows a
failure), checkpoint/coordinator.py, orders.py (orders of clients), record_writer.py and ending.py (the end of the job).
The states of the job are drawn in job_state.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from lockgate_proto import messages as m

from lockgate_coordinator.checkpoint import effects as cf
from lockgate_coordinator.checkpoint import events as ce
from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.content import CheckpointSetting
from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.checkpoint.final import FinalCheckpoint, Purpose
from lockgate_coordinator.graph.normalize import of_record
from lockgate_coordinator.graph.shape import slots_needed, slots_text, vertex_shapes
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.announce import announce
from lockgate_coordinator.job.attempt import Attempt, AttemptEffect, AttemptFailed
from lockgate_coordinator.job.deploy_size import deploy_problem
from lockgate_coordinator.job.ending import Ending, TearDown, WriteResult
from lockgate_coordinator.job.extent import ALL, extent
from lockgate_coordinator.job.job_attempts import JobAttempts, TaskManagerEvent
from lockgate_coordinator.job.job_state import Outcome
from lockgate_coordinator.job.life import JobLife
from lockgate_coordinator.job.orders import (
    OWN_SNAPSHOT,
    Drain,
    JobSnapshot,
    OrderEffect,
    Orders,
    Request,
    Restart,
    refused,
)
from lockgate_coordinator.job.record_writer import RecordWriter
from lockgate_coordinator.job.restart import AT_ONCE, GiveUp, RestartAfter, Restarts
from lockgate_coordinator.job.restore import continues_from, recovery_problem, taken_over
from lockgate_coordinator.job.stragglers import Relocation
from lockgate_coordinator.job.view import job_status

Wanted = AttemptEffect | Relocation | OrderEffect | cf.CheckpointEffect | TearDown | WriteResult
"""The answers of the parts of a job, for the JobMaster itself or for the runtime."""


class JobMaster:
    """One job under one leader; created after a grant, dropped with it or after the effect CleanUp.

    The first event is Recovered or RecoveryFailed. Pure: no I/O, clock, thread.
    """

    def __init__(
        self, record: m.JobRecord, graph: m.JobGraph, *, token: int, checkpoint_directory: str, unix_offset_ms: int = 0
    ) -> None:
        """record: as stored under /jobs/<key>/graph. graph: decoded from it; defaults are filled in here.

        token: of the grant. checkpoint_directory: URI `<storage>/<cluster>/<job_key>/<run_id>`.
        unix_offset_ms: wall clock minus monotonic clock, for display fields only.
        """
        graph = of_record(graph, record)
        self._record = record
        options, shapes = graph.checkpoints or m.CheckpointOptions(), vertex_shapes(graph)
        key, run_id = record.job_key, record.run_id
        self._setting = CheckpointSetting(key, run_id, token, checkpoint_directory, options, shapes, unix_offset_ms)
        self._life = JobLife(record.job_key, token)
        self._restarts = Restarts((graph.restart and graph.restart.strategy) or m.NoRestart())
        self._writer = RecordWriter(record.job_key)
        self._orders = Orders(record.job_key, graph)
        self._attempts = JobAttempts(record, graph, token)
        self._snapshots: CheckpointCoordinator | None = None  # None until the records are read
        self._ending: Ending | None = None
        self._restart_at_ms = 0
        self._wake_ms: int | None = None
        self._out: list[effects.Effect] = []

    def handle(self, event: events.Event, now_ms: int) -> list[effects.Effect]:
        """The one entrance. now_ms: monotonic. Raises IllegalTransition only for a defect of this code."""
        self._out = []
        if self._life.has_ended:
            if isinstance(event, Request):
                self._refuse(event, "The job has ended.")
            return self._out
        for single in events.singles(event):
            self._on(single, now_ms)
        self._proceed(now_ms)
        wake_ms = self._next_wake_ms() if not self._life.has_ended else None
        if wake_ms is not None and (wake_ms != self._wake_ms or isinstance(event, events.Tick)):
            self._out.append(effects.WakeAt(wake_ms))
        self._wake_ms = wake_ms
        return self._out

    def _on(self, event: events.SingleEvent, now_ms: int) -> None:  # noqa: C901  one case a kind
        """Dispatches an event to the parts concerned."""
        match event:  # the frequent ones first
            case events.TaskManagerReport():
                self._on_task_manager_report(event, now_ms)
            case events.Acknowledged() | events.Declined():
                self._to_snapshots(event, now_ms)
            case events.CountersReported() | events.Committed() | events.Reported() | events.FirstRecordSeen():
                self._on_report(event, now_ms)
            case events.Tick():
                self._to_snapshots(event, now_ms)
                self._on_report(event, now_ms)
            case events.CheckpointIdPersisted() | events.CheckpointIdPersistFailed() | events.DisposalBegun():
                self._to_snapshots(event, now_ms)
            case events.CheckpointPersisted() | events.CheckpointPersistFailed() | events.SavepointDisposed():
                self._to_snapshots(event, now_ms)
            case events.SplitsFound() | events.Gone() | events.TaskManagerLost() | events.StillRunning():
                self._on_report(event, now_ms)
            case events.SlotsOffered():
                self._on_slots(event, now_ms)
            case events.SlotsMissing():
                self._on_slots_missing(event, now_ms)
            case events.AttemptPersisted():
                self._on_attempt_persisted(event, now_ms)
            case events.OrdersPersisted(orders):
                self._carry_out(self._orders.written(orders, self._attempts.number, now_ms), now_ms)
            case events.ResultPersisted():
                self._on_result_persisted(now_ms)
            case events.PersistFailed():
                self._on_persist_failed(event, now_ms)
            case events.SavepointRequested() | events.RescaleRequested() | events.StopRequested():
                self._on_request(event, now_ms)
            case events.CancelRequested():
                self._attempts.is_cancelled = True  # see `_proceed`
            case events.Suspended() | events.Resumed():
                self._on_suspended(event, now_ms)
            case events.Recovered():
                self._on_recovered(event, now_ms)
            case events.RecoveryFailed():
                self._on_recovery_failed(event, now_ms)
            case _:
                assert_never(event)

    def _carry_out(self, wanted: Iterable[Wanted], now_ms: int) -> None:
        for effect in wanted:
            match effect:
                case cf.CheckpointTriggered() | cf.CheckpointCompleted() | cf.CheckpointAborted():
                    self._out += announce(effect, self._attempts.current, self._setting.token)
                case AttemptFailed():
                    self._fail(effect, now_ms)
                case cf.TooManyFailures(reason):
                    text = f"{reason}. {self._attempts.busy()}".removesuffix(". ")
                    self._fail(AttemptFailed(m.FailureCause.FAULT, text), now_ms)
                case Relocation():
                    self._relocate(effect, now_ms)
                case Restart():
                    self._reshape(now_ms)
                case Drain():
                    self._out += self._attempts.drain_sources()
                    self._to_snapshots(ce.Draining(), now_ms)
                case events.SavepointRequested() | ce.LastCheckpointDropped():
                    self._to_snapshots(effect, now_ms)
                case effects.AnswerSavepoint(request_id) if request_id == OWN_SNAPSHOT and self._snapshots is not None:
                    now, lives = self._now(self._snapshots, now_ms), self._attempts.current is not None
                    self._carry_out(self._orders.snapshot_answered(effect, lives, now, now_ms), now_ms)
                case TearDown(reason, lost):
                    self._tear_down(reason, now_ms, lost)
                case WriteResult():
                    self._write_result(now_ms)
                case _:  # the rest is for the runtime; a type checker sees that it is
                    self._out.append(effect)

    # queries of the runtime

    def status(self, *, with_subtasks: bool = True) -> m.JobStatus:
        """The status for clients; the runtime sets what only it knows."""
        parts = (self._attempts, self._snapshots, self._restarts, self._ending, self._writer.trouble)
        return job_status(self._record, self._setting, self._life, *parts, with_subtasks=with_subtasks)

    def checkpoints(self) -> CompletedCheckpoints | None:
        """Completed checkpoints and savepoints; None while they cannot be read."""
        return self._snapshots.completed if self._snapshots is not None else None

    def preparation(self) -> m.PrepareJob | None:
        """The advice for task managers with free slots, whose number the runtime fills in; None unless the job runs."""
        attempt = self._attempts.current if self._life.state is m.JobState.RUNNING else None
        return m.PrepareJob(attempt.id, self._attempts.graph) if attempt is not None else None

    @property
    def attempts(self) -> JobAttempts:
        """For questions only: `handle` alone changes them."""
        return self._attempts

    @property
    def is_ending(self) -> bool:
        """True when the end is decided, and so perhaps which snapshots outlive the job."""
        return self._ending is not None

    # recovery

    def _on_recovered(self, event: events.Recovered, now_ms: int) -> None:
        if self._snapshots is not None:
            return
        completed = self._take_over(event, now_ms).completed
        self._restarts.storage.over()
        if event.attempt is not None:
            self._emit(m.JobEventKind.JOB_RECOVERED, *continues_from(completed.restore_point))
        problem = recovery_problem(self._record, self._attempts.graph, completed)
        if self._attempts.may_cancel(now_ms) or (problem and self._attempts.is_cancelled):
            self._cancel(now_ms)
        elif problem:
            self._end(Ending(Outcome.FAILED, problem, keep_all=True), now_ms)
        else:
            self._attempts.count_from(completed.restore_point)
            self._request_slots(now_ms, is_first=True)

    def _on_recovery_failed(self, event: events.RecoveryFailed, now_ms: int) -> None:
        if self._snapshots is not None:
            return
        self._life.error = event.reason
        if self._attempts.is_cancelled:
            self._take_over(event, now_ms)
            self._cancel(now_ms, keep_all=True)
        elif not event.retryable:
            self._take_over(event, now_ms)
            self._end(Ending(Outcome.FAILED, event.reason, keep_all=True), now_ms)
        else:
            pause_ms = self._restarts.storage.not_read(event.reason, now_ms)
            self._life.message = f"the snapshot cannot be read, next try after {pause_ms} ms: {event.reason}"

    def _take_over(self, event: events.Recovered | events.RecoveryFailed, now_ms: int) -> CheckpointCoordinator:
        if event.attempt is not None:
            self._attempts.recovered(event.attempt, now_ms)
            self._restarts.recovered(event.attempt.failures)
        if isinstance(event, events.Recovered):
            self._attempts.graph = self._orders.recovered(event.orders, now_ms)
        self._snapshots = taken_over(self._setting, event)
        if self._life.is_suspended:
            self._to_snapshots(events.Suspended(), now_ms)
        return self._snapshots

    # slots, deployment, reports of task managers

    def _request_slots(self, now_ms: int, *, is_first: bool = False) -> None:
        request = self._attempts.request(now_ms, is_first=is_first)
        self._life.message = slots_text(request.count)
        self._out.append(request)

    def _on_slots_missing(self, event: events.SlotsMissing, now_ms: int) -> None:
        if self._life.state is m.JobState.WAITING_FOR_SLOTS and self._attempts.awaits(event):
            found = (event.free_slots, event.task_managers)
            self._life.message = slots_text(slots_needed(self._attempts.graph), found)
            self._life.note(self._life.message, now_ms)

    def _on_slots(self, event: events.SlotsOffered, now_ms: int) -> None:
        if self._snapshots is None or self._ending is not None or self._life.state is not m.JobState.WAITING_FOR_SLOTS:
            return
        state = self._attempts.begin(event, self._orders.objection(self._snapshots.completed), now_ms)
        if state is m.JobState.RESTARTING:
            self._restart("the slots of running subtasks are gone", now_ms)
        elif state is not None:
            self._move(state, now_ms)
            self._out += self._attempts.adoption_event()
            self._life.message = "its attempt record is being written"
            self._write_attempt(now_ms)

    def _write_attempt(self, now_ms: int) -> None:
        record = self._attempts.record(self._restarts.stored())
        if isinstance(record, AttemptFailed):
            self._fail(record, now_ms)
        else:
            self._writer.want(record, now_ms)

    def _on_attempt_persisted(self, event: events.AttemptPersisted, now_ms: int) -> None:
        record, snapshots = self._writer.written(event), self._snapshots
        if snapshots is not None and record is not None:
            self._writer.drop(now_ms)
            since = snapshots.completed.restore_point, snapshots.newest_begun_id, self._setting.directory
            self._carry_out(self._attempts.persisted(record, *since, now_ms), now_ms)

    def _on_persist_failed(self, event: events.PersistFailed, now_ms: int) -> None:
        if event.attempt in (0, self._attempts.number):
            for writer in (self._writer, self._orders.writer):
                writer.failed(event, now_ms)

    def _on_task_manager_report(self, event: events.TaskManagerReport, now_ms: int) -> None:
        """Handles the valid part of a report: see `JobAttempts.accepted`."""
        counts = self._attempts.accepted(event)
        if counts is not None:
            self._on(counts, now_ms)
        elif self._attempts.is_current(event):
            self._life.note(f"ignored a {type(event.report).__name__} from {event.task_manager_id}", now_ms)

    def _on_report(self, event: TaskManagerEvent, now_ms: int) -> None:
        if self._ending is not None:
            self._out += self._ending.handle(event, now_ms)
        is_read = self._snapshots is not None
        self._carry_out(self._attempts.handle(event, now_ms, is_read=is_read), now_ms)

    def _relocate(self, relocation: Relocation, now_ms: int) -> None:
        """Restarts the job with some slots elsewhere, which is no failure, unless something else is in progress."""
        snapshots, stragglers = self._snapshots, self._attempts.stragglers
        if snapshots is None or self._ending is not None or self._life.is_suspended:
            return
        now = self._now(snapshots, now_ms)
        is_busy = snapshots.settling or snapshots.has_request or not self._orders.is_idle
        if is_busy or not stragglers.may_read_again(now.age_ms):
            return
        if problem := deploy_problem(self._attempts.graph, now.restore, relocation.places):
            self._emit(m.JobEventKind.SUBTASK_STAYS, stragglers.impossible(relocation, problem).text)
            return
        stragglers.moved(relocation, now_ms)
        self._emit(m.JobEventKind.SUBTASK_MOVED, relocation.text)
        self._restart(relocation.text, now_ms)
        self._attempts.places = relocation.places

    # clients, ZooKeeper, checkpoints

    def _cancel(self, now_ms: int, *, keep_all: bool = False) -> None:
        self._move(m.JobState.CANCELING, now_ms)
        self._end(Ending(Outcome.CANCELED, keep_all=keep_all), now_ms)

    def _on_request(self, event: Request, now_ms: int) -> None:
        if self._snapshots is None or self._ending is not None:
            is_savepoint = isinstance(event, events.SavepointRequested)
            what = "A savepoint needs a running job" if is_savepoint else "The job is not ready for that"
            self._refuse(event, f"{what}; try again once it runs.")
        elif isinstance(event, events.SavepointRequested):
            self._to_snapshots(event, now_ms)
        else:
            self._carry_out(self._orders.requested(event, self._now(self._snapshots, now_ms), now_ms), now_ms)

    def _refuse(self, event: Request, error: str) -> None:
        """Refuses a request that the job cannot carry out. If its savepoint exists already, that is the answer."""
        known = self._snapshots.completed.answer_to(event.request_id) if self._snapshots is not None else None
        self._out.append(refused(event, error, known))

    def _on_suspended(self, event: events.Suspended | events.Resumed, now_ms: int) -> None:
        self._life.is_suspended = isinstance(event, events.Suspended)
        self._life.suspended_because = event.reason if isinstance(event, events.Suspended) else ""
        for writer in (self._writer, self._orders.writer):
            writer.suspend(self._life.is_suspended, now_ms)
        self._to_snapshots(event, now_ms)

    def _now(self, snapshots: CheckpointCoordinator, now_ms: int) -> JobSnapshot:
        return JobSnapshot.of(self._life.state, snapshots, self._setting.options.mode, self._attempts.places, now_ms)

    def _reshape(self, now_ms: int) -> None:
        """The new parallelism is durable: restarts a running job, or requests another number of slots."""
        self._attempts.graph = self._orders.graph
        if self._ending is not None:
            return
        if self._attempts.current is not None:
            self._restart("the job continues at another parallelism", now_ms)
        elif self._life.state is m.JobState.WAITING_FOR_SLOTS:
            self._request_slots(now_ms)

    def _to_snapshots(self, event: ce.CheckpointEvent, now_ms: int) -> None:
        if self._snapshots is not None and (wanted := self._snapshots.handle(event, now_ms)):
            # TooManyFailures comes last: it ends the attempt to which the others belong.
            self._carry_out(sorted(wanted, key=lambda effect: isinstance(effect, cf.TooManyFailures)), now_ms)

    # due actions

    def _proceed(self, now_ms: int) -> None:
        """Does everything that has become possible by an event or the passage of time."""
        if self._restarts.storage.may_read(now_ms):
            self._out.append(effects.Recover())
        snapshots = self._snapshots
        if snapshots is None:
            return
        self._carry_out(self._attempts.settle_unread(now_ms), now_ms)
        if self._ending is None and self._attempts.may_cancel(now_ms):
            self._cancel(now_ms)
        if self._attempts.current is not None and self._ending is None:
            self._proceed_attempt(self._attempts.current, snapshots, now_ms)
        if self._attempts.is_record_behind and self._writer.wanted is None and self._ending is None:
            self._write_attempt(now_ms)
        if self._ending is not None:
            self._carry_out(self._ending.proceed(snapshots, self._attempts, now_ms), now_ms)
        elif now_ms >= self._restart_at_ms and self._may_restart(snapshots):
            self._move(m.JobState.WAITING_FOR_SLOTS, now_ms)
            self._request_slots(now_ms)
        self._out += [*self._writer.due(now_ms), *self._orders.writer.due(now_ms)]

    def _may_restart(self, snapshots: CheckpointCoordinator) -> bool:
        """True when every outcome is known on which the next attempt depends."""
        return self._life.state is m.JobState.RESTARTING and not snapshots.settling and not self._orders.reshapes

    def _proceed_attempt(self, attempt: Attempt, snapshots: CheckpointCoordinator, now_ms: int) -> None:
        starting = self._life.is_starting and attempt.deployed_ms is not None
        if starting and attempt.execution.all_started:
            self._restarts.storage.over()
            self._move(m.JobState.RUNNING, now_ms)
            self._out += self._attempts.all_run()
            self._to_snapshots(self._attempts.running(self._orders.carried_out_by(snapshots.completed), now_ms), now_ms)
        if self._life.state is m.JobState.RUNNING and attempt.execution.all_exhausted:
            self._move(m.JobState.FINISHING, now_ms)
            self._to_snapshots(ce.InputExhausted(is_savepoint=self._orders.stop is not None), now_ms)
        if self._ending is None:
            self._carry_out(self._orders.proceed(self._now(snapshots, now_ms), now_ms), now_ms)
        if self._attempts.current is attempt and self._ending is None:  # an order may have restarted the job
            self._proceed_final(attempt, snapshots.final, now_ms)

    def _proceed_final(self, attempt: Attempt, final: FinalCheckpoint, now_ms: int) -> None:
        """Ends the job once every subtask has committed the checkpoint that ends it."""
        if not final.ends_job:
            return
        deadline_ms = now_ms + self._setting.options.timeout_ms
        if not final.was_restored and not attempt.await_commits(final.checkpoint_id, deadline_ms):
            return
        stopped_with = self._orders.stopped_with(final)
        if final.purpose is Purpose.STOP:  # its sources read on, and that output will never be committed
            self._tear_down("the job is stopped", now_ms)
        if self._life.state is m.JobState.RUNNING:
            self._move(m.JobState.FINISHING, now_ms)
        self._end(Ending(Outcome.FINISHED, stopped_with=stopped_with), now_ms)

    def _next_wake_ms(self) -> int | None:
        snapshots, alive = self._snapshots, self._ending or self._attempts.current or self._attempts
        parts = (self._writer, self._orders.writer, self._restarts.storage, snapshots, alive)
        times = [part.next_wake_ms() for part in parts if part is not None]
        if snapshots is not None and self._ending is None and self._may_restart(snapshots):
            times.append(self._restart_at_ms)
        return min((at for at in times if at is not None), default=None)

    # failures and the end

    def _fail(self, failed: AttemptFailed, now_ms: int) -> None:
        attempt = self._attempts.current
        if self._ending is not None or attempt is None or self._snapshots is None:
            return
        decided = self._restarts.failed(failed, attempt, now_ms)
        if not failed.planned:
            self._life.error = failed.text
            self._emit(m.JobEventKind.ATTEMPT_FAILED, failed.text, reason=failed.reason)
        if self._attempts.is_cancelled:  # it was to be adopted for its last commit
            self._cancel(now_ms)
        elif isinstance(decided, GiveUp):
            self._end(Ending(Outcome.FAILED, decided.reason, keep_all=decided.keep_all), now_ms, failed)
        else:
            part, because = extent(failed, attempt, self._life.state, self._snapshots, self._orders)
            self._out += self._attempts.restart_whole(because)
            self._restart(failed.text, now_ms, decided, failed.lost, part)

    def _restart(
        self, reason: str, now_ms: int, after: RestartAfter = AT_ONCE, lost: str = "", part: frozenset[int] = ALL
    ) -> None:
        """Schedules the next attempt, once every outcome is known and the delay is over. part: see `_tear_down`."""
        self._tear_down(reason, now_ms, lost, part)
        self._attempts.is_counted = after.is_counted
        self._move(m.JobState.RESTARTING, now_ms)
        self._restart_at_ms = now_ms + after.delay_ms
        self._life.message = f"{reason}; the next attempt follows after {after.delay_ms} ms"

    def _end(self, ending: Ending, now_ms: int, failed: AttemptFailed | None = None) -> None:
        """Begins the end of the job. failed: the failure of the attempt that causes it, if any."""
        self._ending, self._attempts.is_ending = ending, True
        self._writer.drop(now_ms)
        text = f"the job has ended: {ending.outcome.value.lower()}."
        self._life.note(f"{text} {ending.error}", now_ms)
        self._carry_out(self._orders.ended(text[0].upper() + text[1:]), now_ms)
        self._to_snapshots(ce.NoFurtherAttempt(ending.error or text), now_ms)
        if ending.outcome is Outcome.FINISHED:
            return
        attempt = self._attempts.current
        if attempt is not None and attempt.deployed_ms is not None:
            self._to_snapshots(ce.AttemptEnded(ending.reason), now_ms)
            ending.commit_last(attempt, failed, self._attempts.committed_id, now_ms)
        else:
            self._tear_down(ending.reason, now_ms)
        self._out += self._attempts.cancel_stale(ending.reason)

    def _tear_down(self, reason: str, now_ms: int, lost: str = "", part: frozenset[int] = ALL) -> None:
        """Cancels the current attempt everywhere, and ignores later reports of it; or only its part in these slots."""
        self._writer.drop(now_ms)
        newest = self._snapshots.completed.restore_point if self._snapshots is not None else None
        self._out += self._attempts.tear_down(reason, lost, newest, part, now_ms)
        self._to_snapshots(ce.AttemptEnded(reason, in_part=bool(part)), now_ms)

    def _write_result(self, now_ms: int) -> None:
        if self._ending is not None and self._snapshots is not None:
            unix_ms, failure = now_ms + self._setting.unix_offset_ms, self._restarts.failure
            result = self._ending.result(self._record, self._attempts, self._snapshots.completed, unix_ms, failure)
            self._writer.want(effects.PersistResult(result), now_ms)

    def _on_result_persisted(self, now_ms: int) -> None:
        if self._ending is None or not isinstance(wanted := self._writer.wanted, effects.PersistResult):
            return
        self._writer.drop(now_ms)
        if self._attempts.current is not None:
            self._tear_down("the job has finished", now_ms)
        self._move(self._ending.outcome.state, now_ms)
        self._life.ended_ms = now_ms
        self._out += [effects.ReleaseSlots(self._record.job_key), effects.CleanUp(wanted.result.retained)]

    def _move(self, state: m.JobState, now_ms: int) -> None:
        self._life.move(state, now_ms)
        self._emit(m.JobEventKind.STATE_CHANGED, state.name)

    def _emit(self, kind: m.JobEventKind, text: str, from_id: int = 0, reason: effects.Reason | None = None) -> None:
        self._out.append(self._attempts.event(kind, text, from_id, reason))
