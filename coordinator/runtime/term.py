"""Everything that exists only while this process leads under one grant. Actor thread only."""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import grpc
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptGone,
    AttemptId,
    CancelAttempt,
    CheckpointCommitted,
    DeclineCheckpoint,
    FirstRecord,
    Heartbeat,
    JobEvent,
    JobEventKind,
    JobRecord,
    JobResult,
    SplitsDiscovered,
    SubtaskCounters,
    SubtaskId,
    SubtaskReport,
    TaskManagerMessage,
    TaskManagerStatus,
)

from coordinator.graph.slots import (
    SlotEvent,
    SlotPool,
    SlotsGranted,
    SlotsReleased,
    SlotsShort,
    TaskManagerAdded,
    TaskManagerRemoved,
    TimePassed,
    WakePool,
)
from coordinator.recovery import events as ev
from coordinator.recovery.effects import ControlBody
from coordinator.runtime.actor import Timer, monotonic_ms, unix_us
from coordinator.runtime.clean_ups import CleanUps
from coordinator.runtime.errors import Stopped
from coordinator.runtime.job_reading import Found, JobReading
from coordinator.runtime.job_runner import JobRunner
from coordinator.runtime.persistence import Persistence, Tenure
from coordinator.runtime.recovery_line import RecoveryLine
from coordinator.runtime.shared import Shared
from coordinator.runtime.surroundings import Tools
from coordinator.runtime.task_managers import TaskManager, TaskManagers
from coordinator.runtime.views import status_of
from coordinator.runtime.watch import WatchEnd
from ha.errors import CorruptRecord
from ha.grant import LeadershipGrant

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_MS = 500
_ENDED_KEPT = 200  # runners of ended jobs, kept for their events


class LeaderTerm:
    """The jobs, task managers and slots of one term."""

    def __init__(self, grant: LeadershipGrant, detected_unix_us: int | None, shared: Shared, tenure: Tenure) -> None:
        self.grant = grant
        self.tenure = tenure
        self.recovering = True
        self.suspended = False
        self.jobs: dict[str, JobRunner] = {}
        self.ended: OrderedDict[str, JobRunner] = OrderedDict()
        self.results: dict[str, JobResult] = {}
        self.jobs_known: Future[None] = Future()
        self.results_known: Future[None] = Future()
        self.persistence = Persistence(
            tenure, shared.store, shared.settings.cluster, shared.files, self._forgetting_results
        )
        self.shared = shared
        self._granted_unix_us = unix_us()
        self._detected_unix_us = detected_unix_us
        self._forgotten: set[str] = set()  # results that were given up while they were still being read
        self._pool = SlotPool()
        self._pool_timer: Timer | None = None
        self.task_managers = TaskManagers(grant.token, shared.settings, shared.actor, shared.probes, self)
        # What still hangs from an earlier term of this process is fenced, and no reason to wait.
        self.workers = shared.workers.group(f"term {grant.token}")
        self.deletions = shared.deletions.group(f"term {grant.token}")
        self._clean_ups = CleanUps(tenure, shared.actor, self.deletions, self.persistence)
        self.line = RecoveryLine(tenure, shared.actor, self.workers, self.persistence)
        self._reading = JobReading(tenure, shared.actor, self.workers, self.persistence, self)
        self._tools = Tools(
            shared.actor,
            self.workers,
            self.deletions,
            self.persistence,
            self,
            shared.address,
            shared.files.run_directory,
        )

    @property
    def token(self) -> int:
        """Of the grant."""
        return self.grant.token

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins the heartbeats and reads every job; each goes its own way from there."""
        self.task_managers.start()
        self.background("(jobs)", self.persistence.job_keys, self._recover)

    def _recover(self, keys: tuple[str, ...]) -> None:
        log.info("leading under token %s: %s jobs to recover", self.token, len(keys))
        for key in keys:
            self.add(JobRecord(job_key=key), recovered=True).is_read = False
        self._reading.begin(keys)

    def job_read(self, key: str, found: Found) -> None:
        """See job_reading.Reader."""
        runner = self.jobs[key]
        if isinstance(found, CorruptRecord):
            runner.break_off(f"Its record in ZooKeeper is corrupt: {found}")
        elif found[1] is not None:
            result = found[1]
            log.info("job %s has ended (%s); finishing its clean-up", key, result.outcome)
            self.results[key] = result
            del self.jobs[key]
            runner.had_ended(status_of(result, self.shared.address))
            self._clean_ups.begin(key, result.run_id)
        elif found[0] is not None:
            runner.read(found[0])
            self.line.enter(runner)
        else:
            runner.break_off("Its job graph is missing in ZooKeeper.")

    def job_unreadable(self, key: str, reason: str) -> None:
        """See job_reading.Reader."""
        self.jobs[key].wait(reason)

    def jobs_looked_at(self) -> None:
        """See job_reading.Reader."""
        self.recovering = False
        self.jobs_known.set_result(None)
        for one in self.task_managers.all():
            self._settle_running(one)
        self.background("(results)", self.persistence.results, self._keep_results)

    def _keep_results(self, results: tuple[JobResult, ...]) -> None:
        for one in results:
            if one.job_key not in self._forgotten:
                self.results.setdefault(one.job_key, one)
        self._forgotten.clear()
        self.results_known.set_result(None)

    def _forgetting_results(self, keys: tuple[str, ...]) -> None:
        """On a worker's thread. What is asked for meanwhile is looked up in ZooKeeper, so this may come first."""
        self.shared.actor.tell(partial(self._forget_results, keys))

    def _forget_results(self, keys: tuple[str, ...]) -> None:
        """ZooKeeper keeps the newest; what is kept here answers for the same jobs, not for more."""
        for key in keys:
            self.results.pop(key, None)
            self.ended.pop(key, None)
        if not self.results_known.done():
            self._forgotten.update(keys)

    def suspend(self) -> None:
        """ZooKeeper is away: nothing new begins."""
        self.suspended = True
        for one in list(self.jobs.values()):
            one.handle(ev.Suspended())

    def resume(self) -> None:
        """ZooKeeper is back and the grant still stands."""
        self.suspended = False
        self._reading.hurry()
        for one in list(self.jobs.values()):
            one.handle(ev.Resumed())

    def close(self, reason: str) -> None:
        """The end of the term: drops every machine and stream. Tasks run on until a new leader deploys."""
        self.tenure.over.set()
        if self._pool_timer is not None:
            self._pool_timer.cancel()
        self.task_managers.close(grpc.StatusCode.UNAVAILABLE, f"this coordinator no longer leads: {reason}")
        for one in [*self.jobs.values(), *self.ended.values()]:
            one.close(WatchEnd.LEADERSHIP_LOST)
        for known in (self.jobs_known, self.results_known):
            if not known.done():
                known.set_exception(Stopped("this coordinator no longer leads"))

    def background(self, key: str, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs `call` on the ordered worker of `key` and `then` with its result here, unless the term is over.

        Without `call` the term is of no use, so it is tried until it succeeds.
        """

        def answered(answer: Future[T]) -> None:
            error = answer.exception()
            if self.tenure.over.is_set() or isinstance(error, Stopped):
                return
            if error is None:
                then(answer.result())
                return
            log.error("work for %s failed; it is tried again", key, exc_info=error)
            self.shared.actor.at(monotonic_ms() + _RETRY_MS, lambda: self.background(key, call, then))

        self.workers.submit(key, call).add_done_callback(lambda done: self.shared.actor.tell(partial(answered, done)))

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def add(self, record: JobRecord, *, recovered: bool) -> JobRunner:
        """Takes a job in; the caller loads it. A recovered one begins with the story of the takeover."""
        runner = JobRunner(record, self._tools)
        self.jobs[record.job_key] = runner
        if recovered:
            if self._detected_unix_us is not None:
                runner.hub.event(self._event(JobEventKind.LEADER_LOSS_DETECTED, self._detected_unix_us))
            runner.hub.event(self._event(JobEventKind.LEADER_GRANTED, self._granted_unix_us))
        if self.suspended:
            runner.handle(ev.Suspended())
        return runner

    def _event(self, kind: JobEventKind, at_unix_us: int) -> JobEvent:
        return JobEvent(kind, unix_us=at_unix_us, token=self.token)

    def ended_job(self, runner: JobRunner) -> None:
        """The job has a durable result; its clean-up may begin."""
        self.line.through(runner.key, has_ended=True)
        self._clean_ups.begin(runner.key, runner.record.run_id)
        self.jobs.pop(runner.key, None)
        if runner.result is not None:
            self.results[runner.key] = runner.result
        self.ended[runner.key] = runner
        while len(self.ended) > _ENDED_KEPT:
            self.ended.popitem(last=False)

    # -- task managers ------------------------------------------------------------------------------------------------

    def send(self, task_manager_id: str, body: ControlBody) -> bool:
        """See surroundings.Surroundings."""
        return self.task_managers.send(task_manager_id, body)

    def is_registered(self, task_manager_id: str) -> bool:
        """See surroundings.Surroundings."""
        return self.task_managers.knows(task_manager_id)

    def available_slots(self, job_key: str) -> int:
        """See surroundings.Surroundings."""
        return self._pool.free_slots + sum(self._pool.held_by(job_key).values())

    def runs(self, runner: JobRunner) -> None:
        """See surroundings.Surroundings."""
        self.line.through(runner.key)
        self._prepare(runner, {one.task_manager_id for one in self._pool.task_managers()})

    def _prepare(self, runner: JobRunner, task_manager_ids: set[str]) -> None:
        advice = runner.preparation()
        if advice is None:
            return
        for one in self._pool.task_managers():
            if one.free_slots > 0 and one.task_manager_id in task_manager_ids:
                self.send(one.task_manager_id, dataclasses.replace(advice, slots=one.free_slots))

    def _settle_running(self, one: TaskManager) -> None:
        """What still runs there: its job's master decides; of jobs that have ended it is cancelled at once."""
        for attempt in list(one.running):
            runner = self.jobs.get(attempt.job_key)
            if runner is not None and (not runner.is_read or runner.record.run_id == attempt.run_id):
                still = ev.StillRunning(one.task_manager_id, attempt)
                self.shared.actor.tell(partial(runner.handle_of, attempt.run_id, still))
            elif not self.recovering:  # before, the job may only not have been listed yet
                self.send(one.task_manager_id, CancelAttempt(attempt, "the job has ended"))

    def task_manager_added(self, task_manager: TaskManager, forgotten: frozenset[AttemptId]) -> None:
        """See task_managers.Listener."""
        name = task_manager.task_manager_id
        self._settle_running(task_manager)
        self.slots(TaskManagerAdded(name, task_manager.exchange_address, task_manager.slots))
        for attempt in forgotten:
            runner = self.jobs.get(attempt.job_key)
            if runner is not None and runner.attempt == attempt:
                runner.tell(ev.TaskManagerLost(name, "it does not run the attempt any more"))
        for runner in self.jobs.values():
            self._prepare(runner, {name})

    def task_manager_lost(self, task_manager: TaskManager, reason: str, *, blameless: bool) -> None:
        """See task_managers.Listener."""
        self.slots(TaskManagerRemoved(task_manager.task_manager_id))  # first: nobody may be given its slots again
        for runner in list(self.jobs.values()):
            runner.handle(ev.TaskManagerLost(task_manager.task_manager_id, reason, blameless))

    def task_manager_said(self, task_manager: TaskManager, message: TaskManagerMessage) -> None:
        """See task_managers.Listener."""
        name = task_manager.task_manager_id
        match message.body:
            case Heartbeat(counters=counters):
                self._count(name, counters)
            case SplitsDiscovered(attempt=attempt) as found:
                self._to(attempt, name, ev.SplitsFound(found))
            case AttemptGone(attempt=attempt) as gone:
                self._to(attempt, name, ev.Gone(name, gone))
            case SubtaskReport(subtask=subtask) as report:
                self._to(_attempt(subtask), name, ev.Reported(report))
            case AcknowledgeCheckpoint(subtask=subtask) as acknowledge:
                self._to(_attempt(subtask), name, ev.Acknowledged(acknowledge))
            case DeclineCheckpoint(subtask=subtask) as decline:
                self._to(_attempt(subtask), name, ev.Declined(decline))
            case CheckpointCommitted(subtask=subtask) as committed:
                self._to(_attempt(subtask), name, ev.Committed(committed))
            case FirstRecord(subtask=subtask) as first:
                self._to(_attempt(subtask), name, ev.FirstRecordSeen(first))
            case other:
                log.warning("task manager %s sent %s, which nobody expects", name, other)

    def _to(self, attempt: AttemptId | None, task_manager_id: str, report: ev.Report) -> None:
        runner = self.jobs.get(attempt.job_key) if attempt is not None else None
        if runner is not None and attempt is not None:
            runner.handle_of(attempt.run_id, ev.Said(task_manager_id, report))

    def _count(self, task_manager_id: str, counters: tuple[SubtaskCounters, ...]) -> None:
        by_job: dict[AttemptId, list[SubtaskCounters]] = {}
        for one in counters:
            if one.subtask is not None and one.subtask.attempt is not None:
                by_job.setdefault(one.subtask.attempt, []).append(one)
        for attempt, found in by_job.items():
            self._to(attempt, task_manager_id, ev.CountersReported(tuple(found), self._spares(attempt.job_key)))

    def _spares(self, job_key: str) -> tuple[ev.Spare, ...]:
        runner = self.jobs.get(job_key)
        found = self._pool.spares(job_key) if runner is not None and runner.wants_spares else ()
        return tuple(ev.Spare(one.task_manager_id, one.exchange_address, one.free_slots) for one in found)

    # -- slots --------------------------------------------------------------------------------------------------------

    def slots(self, event: SlotEvent) -> None:
        """Gives an event to the SlotPool and passes its answers on."""
        for effect in self._pool.handle(event, monotonic_ms()):
            match effect:
                case SlotsGranted(job_key, request, slots):
                    self._tell(job_key, ev.SlotsOffered(request, slots))
                case SlotsShort(job_key, request, free_slots, task_managers):
                    self._tell(job_key, ev.SlotsMissing(request, free_slots, task_managers))
                case WakePool(at_ms):
                    if self._pool_timer is not None:
                        self._pool_timer.cancel()
                    self._pool_timer = self.shared.actor.at(at_ms, lambda: self.slots(TimePassed()))

    def _tell(self, job_key: str, event: ev.Event) -> None:
        runner = self.jobs.get(job_key)
        if runner is not None:
            runner.tell(event)
        else:
            self.slots(SlotsReleased(job_key))

    def slot_counts(self) -> tuple[int, ...]:
        """Slots of every registered task manager."""
        return tuple(one.slots for one in self._pool.task_managers())

    def task_manager_statuses(self) -> tuple[TaskManagerStatus, ...]:
        """Every registered task manager, by id."""
        pids = {one.task_manager_id: one.pid for one in self.task_managers.all()}
        return tuple(
            TaskManagerStatus(
                one.task_manager_id, one.exchange_address, pids.get(one.task_manager_id, 0), one.slots, one.free_slots
            )
            for one in self._pool.task_managers()
        )


def _attempt(subtask: SubtaskId | None) -> AttemptId | None:
    return None if subtask is None else subtask.attempt
