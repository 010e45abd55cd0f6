"""One job under this leader: feeds events to its JobMaster and carries out the effects. Actor thread only.

LOADING --records read--> RUNNING --CleanUp--> ENDED
   |                         |
   +---cannot be read--------+---internal error--> BROKEN --cancelled by a client--> ENDED
   +---storage away: retries                       (no file is ever deleted)
   +---held back until it is released (see recovery_line.py), also out of RUNNING while nothing is recovered
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, assert_never

from grpc import StatusCode
from lockgate_common.clock import monotonic_ms, unix_us
from lockgate_common.logs import about
from lockgate_common.serving.refusals import Refused
from lockgate_common.story_log import Outside
from lockgate_ha.errors import CorruptRecord
from lockgate_proto.messages import (
    AttemptId,
    CancelAttempt,
    CompletedCheckpoint,
    JobEvent,
    JobEventKind,
    JobGraph,
    JobRecord,
    JobResult,
    JobState,
    JobStatus,
    PrepareJob,
    RescaleResponse,
    VertexParallelism,
)

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.graph.destinations import Destination, destinations
from lockgate_coordinator.job import effects as do
from lockgate_coordinator.job import events as ev
from lockgate_coordinator.job.adoption import slot_ids
from lockgate_coordinator.job.backoff import Backoff
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_coordinator.job.job_state import Outcome
from lockgate_coordinator.job.together import together
from lockgate_coordinator.runtime.actor import Timer
from lockgate_coordinator.runtime.deletions import Deletions
from lockgate_coordinator.runtime.early_events import EarlyEvents
from lockgate_coordinator.runtime.errors import Busy, NeedsOperator, Stopped, StorageError
from lockgate_coordinator.runtime.job_story import JobStory, caused
from lockgate_coordinator.runtime.job_work import JobWork
from lockgate_coordinator.runtime.metadata_files import run_of
from lockgate_coordinator.runtime.requests import Requests, settle
from lockgate_coordinator.runtime.runner_services import RunnerServices
from lockgate_coordinator.runtime.stage import Stage, state_without_master
from lockgate_coordinator.runtime.status_publisher import StatusPublisher
from lockgate_coordinator.runtime.views import given_up, not_read, status_without_master
from lockgate_coordinator.runtime.watch import WatchEnd, Watcher

log = logging.getLogger(__name__)

T = TypeVar("T")


class JobRunner:
    """Runs one job, and reports its status and events to watchers."""

    def __init__(self, record: JobRecord, services: RunnerServices) -> None:
        self.record = record
        self.key = record.job_key
        self.result: JobResult | None = None
        self.stage = Stage.LOADING
        self._services = services
        self._master: JobMaster | None = None
        self.story: JobStory | None = None  # kept when the job has ended
        self.is_fresh = False  # no checkpoint yet
        self.is_read = True  # False: only the key is known so far
        self._early, self._requests, self._backoff = EarlyEvents(), Requests(), Backoff()
        self._wake: Timer | None = None
        self._work = JobWork(self.key, services, self._guarded, self._write_failed)
        self._deletions = Deletions(self.key, lambda: run_of(self.record), services)
        self.is_held = False  # LOADING, and waits for a client
        self.trouble = ""  # why the records cannot be read for now
        self._given_up: Future[JobState] | None = None
        self.destinations: tuple[Destination, ...] | None = None  # where its sinks write; None: not known yet
        self.attempt: AttemptId | None = None
        self._error, self._closed, self._placed = "", False, set[tuple[str, AttemptId]]()
        first = JobStatus(job_key=self.key, run_id=record.run_id, state=JobState.WAITING_FOR_SLOTS)
        publisher = self._publisher = StatusPublisher(services, self._view, first)
        self.hub, self.meters, self.note = publisher.hub, publisher.meters, publisher.note
        self.outcomes = publisher.outcomes  # of a job that has ended

    # -- life ---------------------------------------------------------------------------------------------------------

    def wait(self, trouble: str) -> None:
        """Its record cannot be read for now. trouble: why."""
        self.trouble = trouble
        self._publisher.changed(at_once=True)

    def read(self, record: JobRecord) -> None:
        """Its record is read; the caller loads it."""
        self.record, self.is_read, self.trouble = record, True, ""

    def had_ended(self, status: JobStatus) -> None:
        """It has a result already."""
        self._ended(**{field.name: getattr(status, field.name) for field in dataclasses.fields(status)})
        self._take_early()
        self._publisher.changed(at_once=True)

    def _take_early(self) -> list[ev.Event]:
        events, others = self._early.take(self.record.run_id)
        for other in others:
            self._services.send(other.task_manager_id, CancelAttempt(other.attempt, "its run has ended"))
        return events

    def load(self, *, fresh: bool) -> None:
        """Reads the job's records and starts its JobMaster. fresh: it was submitted a moment ago."""
        if self.stage is not Stage.LOADING:
            return  # it was given up meanwhile
        self.is_fresh, self.is_held = fresh, False
        read = partial(self._services.persistence.start, self.record, fresh=fresh)
        self._work.do(read, lambda found: self._start(*found), lambda error: self._load_failed(error, fresh=fresh))

    def _start(self, graph: JobGraph, event: ev.Recovered | ev.RecoveryFailed) -> None:
        if self.stage is not Stage.LOADING:
            return  # it was given up meanwhile
        self.destinations = destinations(graph)
        self._master = JobMaster(
            self.record,
            graph,
            token=self._services.context.token,
            checkpoint_directory=self._services.directory(run_of(self.record)),
            unix_offset_ms=unix_us() // 1_000 - monotonic_ms(),
        )
        self.story, self.stage, self.trouble = self._services.new_story(), Stage.RUNNING, ""
        self.handle(event, Outside.CLIENT if self.is_fresh else Outside.LEADERSHIP)
        for early in self._take_early():
            self.handle(early)

    def hold_back(self, reason: str) -> None:
        """Leaves the job alone until a client releases it, when `load` follows. It can be cancelled."""
        if self.stage in (Stage.ENDED, Stage.BROKEN):
            return
        log.error("job %s is held back: %s", self.key, reason)
        self.stage, self._master, self.is_held, self.trouble = Stage.LOADING, None, True, reason
        self._requests.fail_all(Refused(StatusCode.FAILED_PRECONDITION, reason))
        self._stop_tasks()
        self.hub.status(self.status())
        self._finish_requested_cancel()

    def _load_failed(self, error: BaseException, *, fresh: bool) -> None:
        if self.stage is not Stage.LOADING:
            return
        if isinstance(error, NeedsOperator):
            self.hold_back(str(error))
        elif isinstance(error, StorageError) and error.retryable:
            pause_ms = self._backoff.failed(now_ms := monotonic_ms())
            self.trouble = f"its job graph cannot be read, next try after {pause_ms} ms: {error}"
            self._services.trouble.warning(log, f"graph of {self.key}", "job %s: %s", self.key, self.trouble)
            self._publisher.changed(at_once=True)
            self._wake = self._services.actor.at(now_ms + pause_ms, lambda: self.load(fresh=fresh))
        else:
            self.quarantine(f"The job cannot be recovered: {error}")

    def quarantine(self, reason: str) -> None:
        """Ends the job under this leader without touching its records, which may be all that is left of it."""
        if self.stage is Stage.ENDED:  # its result stays valid, whatever failed later
            self._publisher.changed(at_once=True)
            return
        log.error("job %s is quarantined; its files are kept, and a new leader retries it: %s", self.key, reason)
        self.stage, self._error, self.is_read = Stage.BROKEN, reason, True  # read as far as possible
        self._deletions.close()
        self._requests.fail_all(Refused(StatusCode.ABORTED, f"the job failed: {reason}"))
        self._stop_tasks()
        self.hub.event(JobEvent(JobEventKind.STATE_CHANGED, unix_us=unix_us(), token=self._token, text="FAILED"))
        self.hub.status(self.status())
        self.hub.finish(WatchEnd.JOB_ENDED)
        self._finish_requested_cancel()

    def _stop_tasks(self) -> None:
        """Cancels the attempts that this leader has deployed, and those that task managers still run from before."""
        self._rest()
        for name, attempt in sorted(self._placed, key=lambda item: (item[0], item[1].attempt)):
            self._services.send(name, CancelAttempt(attempt, "the job failed"))
        for early in self._take_early():
            self.handle(early)
        self._services.context.slots(do.ReleaseSlots(self.key))

    def cancel(self) -> Future[JobState]:
        """Ends the job; answers with its state when that is certain. Fails with StoreError, Stopped. Raises Busy."""
        if not self.is_read:
            raise not_read(self.key, self.trouble)
        if self.stage is Stage.BROKEN or self.trouble:
            return self._give_up()
        answer: Future[JobState] = Future()
        mark = partial(self._services.persistence.request_cancel, self.record)
        written = self._services.workers.submit(f"(cancel) {self.key}", mark)  # not behind a file that hangs
        self.handle(ev.CancelRequested())
        state = self.status().state
        if self.stage is Stage.LOADING or state in (JobState.WAITING_FOR_SLOTS, JobState.ADOPTING):
            state = JobState.CANCELING  # as soon as its attempt is adopted, or cannot be

        def marked(done: Future[None]) -> None:
            if done.exception() is None:
                self._services.actor.tell(self._cancel_is_durable)  # before the answer: the client relies on it
            settle(answer, done, state)

        written.add_done_callback(marked)
        return answer

    def _cancel_is_durable(self) -> None:
        if not self._closed:
            self.record = dataclasses.replace(self.record, cancel_requested=True)
            self._finish_requested_cancel()  # it may have been broken off while the mark was written

    def _finish_requested_cancel(self) -> None:
        """Gives up a job that was cancelled if it is quarantined or held back: no JobMaster will end it."""
        other = self.result is not None and self.result.outcome != JobState.CANCELED.name  # may be durable: it stands
        if (self.stage is Stage.BROKEN or self.is_held) and self.record.cancel_requested and not other:
            self._give_up()

    def _give_up(self) -> Future[JobState]:
        """A client cancels a job that cannot run: writes the result, deletes the records, keeps every file."""
        if self._given_up is not None:
            return self._given_up
        answer = self._given_up = Future[JobState]()
        if self.stage is Stage.LOADING:
            self._error = self.trouble if self.is_held else f"cancelled while {self.trouble}"
            self.stage, self.is_held = Stage.BROKEN, False
            self._stop_tasks()
        result = given_up(self.record, self._error, unix_us() // 1_000, self._token)

        def written(done: Future[JobResult]) -> None:
            self._services.actor.tell(lambda: self._gave_up(done))  # before the answer, so that the client sees the end
            settle(answer, done, JobState.CANCELED)

        work = self._services.workers.submit(self.key, partial(self._services.persistence.give_up, result))
        work.add_done_callback(written)
        return answer

    def _gave_up(self, done: Future[JobResult]) -> None:
        if self._closed:
            return
        error = done.exception()
        if error is not None:
            log.warning("job %s could not be cancelled: %s", self.key, error)
            self._given_up = None
            self.hub.status(self.status())
            self.hub.finish(WatchEnd.JOB_ENDED)
            return
        self.result = done.result()
        self._ended(state=JobState.CANCELED, ended_unix_ms=self.result.ended_unix_ms)
        self._publisher.changed(at_once=True)
        self._services.context.ended_job(self.key)

    def _ended(self, **changes: Any) -> None:
        """Drops everything but the final status and story. changes: see StatusPublisher.end."""
        self._publisher.end(self.query(JobMaster.checkpoints), **changes)
        self.stage, self.is_read = Stage.ENDED, True
        self.record, self._master = dataclasses.replace(self.record, graph=b""), None
        if self.story is not None:
            self.story.end()
        self._deletions.close()

    def close(self, end: WatchEnd) -> None:
        """Drops everything: the term is over. Nothing is sent or written any more."""
        self._closed = True
        self._work.close()
        self._deletions.close()
        self._requests.fail_all(Stopped("this coordinator no longer leads; ask the new leader"))
        self._rest()
        self._publisher.close(end)

    # -- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, cause_id: str = "") -> None:
        """Gives the event to the JobMaster and carries out the effects. An internal error ends only this job.

        cause_id: the event of this job that caused it, if any; see JobStory.
        """
        if self._closed or self.stage is Stage.ENDED:
            return
        if self.stage is Stage.BROKEN or self.is_held:
            if isinstance(event, ev.StillRunning):
                self._services.send(event.task_manager_id, CancelAttempt(event.attempt, "the job failed"))
            return
        if self.stage is Stage.LOADING or self._master is None or self.story is None:
            self._early.add(event)
            return
        decide = partial(self._decide, self._master, self.story, event, cause_id)
        self._guarded(f"handling {type(event).__name__}", decide)

    def _decide(self, master: JobMaster, story: JobStory, event: ev.Event, cause_id: str) -> None:
        try:
            wanted = master.handle(event, monotonic_ms())
        except Exception as error:
            story.failed(event, cause_id, error)
            raise
        event_id = story.handled(event, cause_id, wanted)
        for effect in together(wanted):
            self._do(effect, event_id)
        self._publisher.changed(at_once=any(isinstance(emit, do.Emit) for emit in wanted))

    def _guarded(self, what: str, call: Callable[[], None]) -> None:
        """Makes a call that concerns only this job: an error in it ends this job and no other."""
        try:
            with about(job=self.key, token=self._token):
                call()
        except Exception as error:
            self._mistake(what, error)

    def _mistake(self, what: str, error: BaseException) -> None:
        log.error("job %s: internal error while %s", self.key, what, exc_info=error)
        self.quarantine(f"An internal error of the coordinator, see its log: {type(error).__name__}: {error}")

    def handles(self, run_id: str) -> bool:
        """Whether this run of the key is its own, as far as that is known yet."""
        return not self.is_read or run_id == self.record.run_id

    def handle_of(self, run_id: str, event: ev.Event) -> None:
        """`handle`, unless the event is of another run of this key."""
        if not self.is_read:
            self._early.add(event, run_id)
        elif run_id == self.record.run_id:
            self.handle(event)

    def tell(self, event: ev.Event, cause_id: str = "") -> None:
        """`handle`, after the calls that are queued already."""
        self._services.actor.tell(lambda: self.handle(event, cause_id))

    def _do(self, effect: do.Effect, event_id: str) -> None:
        """Carries out an effect. event_id: of the event that caused it."""
        services = self._services
        match effect:
            case do.Send(task_manager_id, body):
                if not services.send(task_manager_id, caused(body, event_id)):
                    self.tell(ev.TaskManagerLost(task_manager_id, "it is not connected", planned=True), event_id)
            case do.Emit(event):
                self._publisher.event(effect, event_id)
                self._note_event(event)
            case do.WakeAt(at_ms):
                self._rest()
                self._wake = services.actor.at(at_ms, lambda: self.handle(ev.Tick()))
            case do.RequestSlots() | do.ReleaseSlots():
                services.context.slots(effect)
            case do.AnswerSavepoint():
                self._requests.savepoint(effect)
            case do.AnswerRescale():
                self._requests.rescale(effect)
            case _:
                self._persist(effect, event_id)

    def _persist(self, effect: do.Durable, event_id: str) -> None:
        """Carries out effects on ZooKeeper and files on the job's worker, in order; deletions of files on another."""
        key, store, answered = self.key, self._services.persistence, partial(self.handle, cause_id=event_id)
        match effect:
            case do.PersistAttempt(record):
                self.attempt = AttemptId(key, self.record.run_id, record.attempt)
                self._placed = set(zip(record.task_manager_ids, slot_ids(self.attempt, record), strict=False))
                self._work.do(lambda: store.write_attempt(key, record), answered)
            case do.PersistOrders(orders):
                self._work.do(lambda: store.write_orders(key, orders), answered)
            case do.PersistCheckpointId(number):
                self._work.do(lambda: store.write_checkpoint_id(key, number), answered)
            case do.PersistCheckpoint():
                self._work.do(lambda: store.write_checkpoint(run_of(self.record), effect), answered)
            case do.PersistResult(result):
                checksum = result.graph_checksum or self.record.graph_checksum
                self.result = dataclasses.replace(result, graph_checksum=checksum)
                self._work.do(lambda: store.write_result(self.result or result), answered)
            case do.DiscardCheckpoint():
                self._deletions.discard(effect)
            case do.DiscardPending(number):
                self._deletions.discard_pending(number)
            case do.Recover():
                self._work.do(lambda: store.recover(self.record), answered)
            case do.CleanUp():
                self._end()
            case _:
                assert_never(effect)

    def _end(self) -> None:
        self._ended(**({"state": Outcome(self.result.outcome).state} if self.result is not None else {}))
        self._requests.fail_all(Refused(StatusCode.FAILED_PRECONDITION, "the job has ended"))
        self._rest()
        self._services.context.ended_job(self.key)

    def _rest(self) -> None:
        if self._wake is not None:
            self._wake.cancel()

    def _write_failed(self, error: BaseException) -> None:
        if isinstance(error, CorruptRecord):
            self.quarantine(f"A record in ZooKeeper is corrupt: {error}")
        elif isinstance(error, NeedsOperator):
            self.hold_back(str(error))
        else:
            self._mistake("writing", error)

    def preparation(self) -> PrepareJob | None:
        """The advice for task managers with free slots, while the job runs."""
        return self.query(lambda master: master.preparation()) if self.stage is Stage.RUNNING else None

    @property
    def wants_spares(self) -> bool:
        """Whether heartbeats need the number of free slots."""
        return bool(self.query(lambda master: master.attempts.stragglers.is_wanted))

    def query(self, query: Callable[[JobMaster], T]) -> T | None:
        """The JobMaster's answer; None without one, and when it raises, because the job does not depend on it."""
        try:
            return query(self._master) if self._master is not None else None
        except Exception:
            log.exception("job %s: internal error while looking at it", self.key)
            return None

    # -- requests of clients ------------------------------------------------------------------------------------------

    def status(self, *, with_subtasks: bool = True) -> JobStatus:
        """The status for clients."""
        return self._publisher.status(with_subtasks=with_subtasks)

    def _view(self, with_subtasks: bool) -> JobStatus:
        if self.stage is Stage.BROKEN or self._master is None:
            state = state_without_master(self.stage, is_held=self.is_held, is_given_up=self._given_up is not None)
            status = status_without_master(self.record, state, self.attempt, self._token, self._error, self.trouble)
        else:
            status = self._master.status(with_subtasks=with_subtasks)
        return self._services.of_leader(status)

    def checkpoints(self) -> CompletedCheckpoints:
        """Completed checkpoints. Raises Busy while they are being read, Refused when they cannot be."""
        if self._master is not None and (known := self._master.checkpoints()) is not None:
            return known
        if self.is_fresh:
            return CompletedCheckpoints(0, (), None)
        if self.stage in (Stage.LOADING, Stage.RUNNING) and not self.is_held:
            raise Busy(f"the records of job {self.key} are being read; try again")
        text = f"the checkpoints of job {self.key} cannot be read: {self._error or self.trouble}"
        raise Refused(StatusCode.FAILED_PRECONDITION, text)

    def watch(self, *, changes: bool = False) -> Watcher:
        """A new watcher; of a job that has ended it ends after the kept events. changes: see Watcher."""
        watcher = self.hub.watch(self.status(), changes=changes)
        if self.stage is Stage.ENDED or (self.stage is Stage.BROKEN and self._given_up is None):
            self.hub.finish(WatchEnd.JOB_ENDED)
        return watcher

    def savepoint(self, timeout_ms: int, request_id: str = "") -> Future[CompletedCheckpoint]:
        """Requests a savepoint; the same request id yields the same one. Fails with Refused, Busy or Stopped."""
        return self._request(lambda name: ev.SavepointRequested(name, timeout_ms), request_id)

    def stop(self, drain: bool, timeout_ms: int) -> Future[CompletedCheckpoint]:
        """Requests the end of the job with a savepoint. Fails as `savepoint`."""
        return self._request(lambda name: ev.StopRequested(name, drain, timeout_ms))

    def rescale(self, wanted: tuple[VertexParallelism, ...], timeout_ms: int) -> Future[RescaleResponse]:
        """Requests another parallelism. Fails as `savepoint`."""
        slots = self._services.context.available_slots(self.key)
        return self._request(lambda name: ev.RescaleRequested(name, wanted, slots, timeout_ms))

    def _request(self, event: Callable[[str], ev.Event], request_id: str = "") -> Future[Any]:
        answer: Future[Any] = Future()
        if self.is_held:
            answer.set_exception(Refused(StatusCode.FAILED_PRECONDITION, self.trouble))
        elif self.stage is Stage.LOADING:
            answer.set_exception(not_read(self.key, self.trouble))
        elif self.stage is not Stage.RUNNING:
            answer.set_exception(Refused(StatusCode.FAILED_PRECONDITION, f"job {self.key} has ended"))
        else:
            self.handle(event(self._requests.add(answer, request_id)))
        return answer

    def dispose(self, savepoint: CompletedCheckpoint) -> Future[None]:
        """Deletes a savepoint that is not the job's restore point. Fails with StoreError or StorageError.

        Raises Refused for a quarantined job, no file of which is ever deleted, and Busy while the job ends.
        """
        if self.stage is Stage.BROKEN:
            text = f"job {self.key} is quarantined and its files are kept; cancel it, then dispose of the savepoint"
            raise Refused(StatusCode.FAILED_PRECONDITION, text)
        if self.query(lambda master: master.is_ending):
            raise Busy(f"job {self.key} is about to end; dispose of the savepoint when it has")
        self.handle(ev.DisposalBegun(savepoint.checkpoint_id))
        return self._deletions.dispose(savepoint, lambda: self.tell(ev.SavepointDisposed(savepoint.checkpoint_id)))

    @property
    def _token(self) -> int:
        return self._services.context.token

    def _note_event(self, event: JobEvent) -> None:
        if event.kind is JobEventKind.ATTEMPT_DEPLOYED:
            self._services.context.runs(self.key)
        if event.kind is JobEventKind.CHECKPOINT_COMPLETED:
            self._deletions.completed(event.checkpoint_id)
            self._services.context.checkpoint_completed(self.key)
