"""Everything that exists only while this process leads under one grant. Actor thread only."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TypeVar, assert_never

import grpc
from lockgate_common.amounts import counted
from lockgate_common.clock import monotonic_ms, unix_us
from lockgate_ha.errors import CorruptRecord
from lockgate_ha.grant import LeadershipGrant
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptGone,
    AttemptId,
    CancelAttempt,
    CheckpointCommitted,
    ClusterStatus,
    CompletedCheckpoint,
    CopiesKept,
    DeclineCheckpoint,
    FirstRecord,
    Heartbeat,
    JobEvent,
    JobEventKind,
    JobRecord,
    JobResult,
    OperatorKeys,
    ReportBatch,
    SplitsDiscovered,
    StandbyStatus,
    StateAnswer,
    StoryAnswer,
    SubtaskCounters,
    SubtaskReport,
    TaskManagerMessage,
    TaskManagerStatus,
)

from lockgate_coordinator.graph.slots import (
    AttemptEnded,
    ReleaseSlots,
    RequestSlots,
    RunningAttempt,
    SlotEvent,
    SlotPool,
    SlotsMissing,
    SlotsOffered,
    TaskManagerAdded,
    TaskManagerEnded,
    TaskManagerRemoved,
    TimePassed,
    WakePool,
)
from lockgate_coordinator.job import events as ev
from lockgate_coordinator.job.adoption import may_go_on
from lockgate_coordinator.runtime.absent_task_managers import AbsentTaskManagers
from lockgate_coordinator.runtime.actor import Timer
from lockgate_coordinator.runtime.clean_ups import CleanUps
from lockgate_coordinator.runtime.coordinator_services import CoordinatorServices
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.job_reading import Found, JobReading
from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_coordinator.runtime.job_story import JobStory
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.recorded_leaders import RecordedLeaders
from lockgate_coordinator.runtime.recovery_line import RecoveryLine
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.runner_services import RunnerServices
from lockgate_coordinator.runtime.standby_copies import StandbyCopies
from lockgate_coordinator.runtime.state_queries import Query, StateQueries
from lockgate_coordinator.runtime.story_requests import StoryParts, StoryRequests
from lockgate_coordinator.runtime.subtask_reports import reports_in
from lockgate_coordinator.runtime.task_managers import TaskManager, TaskManagers
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_coordinator.runtime.views import status_of, task_manager_statuses
from lockgate_coordinator.runtime.watch import WatchEnd

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_MS = 500
_ENDED_KEPT = 200  # runners of ended jobs that are kept for their events


class LeaderTerm:
    """The jobs, task managers and slots of one term."""

    def __init__(
        self, grant: LeadershipGrant, detected_unix_us: int | None, services: CoordinatorServices, fence: TermFence
    ) -> None:
        self.grant = grant
        self.fence = fence
        self.recovering = True
        self.suspended = False
        self.suspended_because = ""
        self.jobs: dict[str, JobRunner] = {}
        self.ended: OrderedDict[str, JobRunner] = OrderedDict()
        self.results: dict[str, JobResult] = {}
        self.jobs_known: Future[None] = Future()
        self.results_known: Future[None] = Future()
        kept = (fence, services.store, services.settings.cluster, services.files)
        self.persistence = Persistence(*kept)
        self.removals = Removals(*kept, self._forgetting_results)
        self.services = services
        self._granted_unix_us = unix_us()
        self._detected_unix_us = detected_unix_us
        self._is_listed = False  # whether there is a runner for each job that was there at the grant
        self._early: list[tuple[AttemptId, ev.TaskManagerReport]] = []  # until then
        self._forgotten: set[str] = set()  # results deleted while they were still being read
        self._pool = SlotPool()
        self._pool_timer: Timer | None = None
        self._absent = AbsentTaskManagers(services.actor, services.absent, self._awaits, self._will_not_come)
        self.task_managers = TaskManagers(grant.token, services.settings, services.actor, services.probes, self)
        self.stories = StoryRequests(services.actor, self.task_managers.send)
        self.queries = StateQueries(services.actor, self.task_managers.send)
        self._copies = StandbyCopies(self.task_managers.send, self._free_slots)
        # Calls that still hang from an earlier term of this process are fenced, so this term does not wait.
        self.workers = services.workers.group(f"term {grant.token}")
        self.deletions = services.deletions.group(f"term {grant.token}")
        self._clean_ups = CleanUps(fence, services.actor, self.deletions, self.removals)
        self.line = RecoveryLine(fence, services.actor, self.workers, self.persistence)
        times = (self._granted_unix_us, detected_unix_us)
        self._leaders = RecordedLeaders(fence, services, self.workers, self.persistence, *times)
        self._reading = JobReading(fence, services.actor, self.workers, self.persistence, self)
        self._runner_services = RunnerServices(
            services.actor,
            self.workers,
            self.deletions,
            self.persistence,
            self.removals,
            self,
            self.task_managers.send,
            services.address,
            services.files.run_directory,
            partial(JobStory, grant.coordinator_id, grant.token, itertools.count(1)),
            fence.trouble,
            services.traces,
        )

    @property
    def token(self) -> int:
        """The token of the grant."""
        return self.grant.token

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the heartbeats and the recovery of every job, independently of each other."""
        self.task_managers.start()
        self.background("(jobs)", self.persistence.job_keys, self._recover)

    def _recover(self, keys: tuple[str, ...]) -> None:
        log.info("leading under token %s: %s to recover", self.token, counted(len(keys), "job"))
        for key in keys:
            self.add(JobRecord(job_key=key), recovered=True).is_read = False
        for task_manager in self.task_managers.all():  # before any of the jobs may begin an attempt
            self._settle_running(task_manager)
        early, self._early = self._early, []
        for attempt, report in early:
            self._to(attempt, report.task_manager_id, report.report)
        self._is_listed = True
        self._reading.begin(keys)

    def job_read(self, key: str, found: Found) -> None:
        runner = self.jobs[key]
        if isinstance(found, CorruptRecord):
            runner.quarantine(f"Its record in ZooKeeper is corrupt: {found}")
        elif found.result is not None:
            result = found.result
            log.info("job %s has ended (%s); finishing its clean-up", key, result.outcome)
            self.results[key] = result
            self.fence.meters.jobs_ended.add(result.outcome)  # the leader before may not have shown it any more
            del self.jobs[key]
            runner.had_ended(status_of(result, self.services.address))
            self._clean_ups.begin(key, result.run_id)
            self._copies.ended(key, result.run_id, self._free_slots())
        elif found.record is not None:
            runner.read(found.record)
            self.line.enter(runner, found.deaths)
        else:
            runner.quarantine("Its job graph is missing in ZooKeeper.")

    def job_unreadable(self, key: str, reason: str) -> None:
        self.jobs[key].wait(reason)

    def jobs_scanned(self) -> None:
        self.recovering = False
        self.jobs_known.set_result(None)
        for task_manager in self.task_managers.all():
            self._settle_running(task_manager)
        self.background("(results)", self.persistence.results, self._keep_results)
        self._leaders.record_soon()

    def _keep_results(self, results: tuple[JobResult, ...]) -> None:
        for result in results:
            if result.job_key not in self._forgotten:
                self.results.setdefault(result.job_key, result)
        self._forgotten.clear()
        self.results_known.set_result(None)

    def _forgetting_results(self, keys: tuple[str, ...]) -> None:
        """Called on a worker's thread before the deletion. Until then requests are answered from ZooKeeper."""
        self.services.actor.tell(partial(self._forget_results, keys))

    def _forget_results(self, keys: tuple[str, ...]) -> None:
        """Drops the results that ZooKeeper does not keep any more, so that both answer for the same jobs."""
        for key in keys:
            self.results.pop(key, None)
            self.ended.pop(key, None)
        if not self.results_known.done():
            self._forgotten.update(keys)

    def suspend(self, reason: str = "") -> None:
        """ZooKeeper is unreachable: nothing new begins. Again with the reason, once that is known."""
        self.suspended, self.suspended_because = True, reason
        for job in list(self.jobs.values()):
            job.handle(ev.Suspended(reason))

    def explain(self, reason: str) -> None:
        """The reason why ZooKeeper is unreachable, if it still is. The same one again changes nothing."""
        if self.suspended and reason != self.suspended_because:
            self.suspend(reason)

    def resume(self) -> None:
        """ZooKeeper is reachable again and the grant is still valid."""
        self.suspended, self.suspended_because = False, ""
        self._reading.hurry()
        for job in list(self.jobs.values()):
            job.handle(ev.Resumed())

    def close(self, reason: str) -> None:
        """Ends the term: drops every machine and stream. Tasks run on until a new leader deploys."""
        self.fence.over.set()
        if self._pool_timer is not None:
            self._pool_timer.cancel()
        self.task_managers.close(grpc.StatusCode.UNAVAILABLE, f"this coordinator no longer leads: {reason}")
        for job in [*self.jobs.values(), *self.ended.values()]:
            job.close(WatchEnd.LEADERSHIP_LOST)
        self.stories.close()
        self.queries.close()
        for known in (self.jobs_known, self.results_known):
            if not known.done():
                known.set_exception(Stopped("this coordinator no longer leads"))

    def background(self, key: str, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs `call` on the ordered worker of `key` and `then` with its result here, unless the term is over.

        The term cannot work without it, so it is retried until it succeeds.
        """

        def answered(answer: Future[T]) -> None:
            error = answer.exception()
            if self.fence.over.is_set() or isinstance(error, Stopped):
                return
            if error is None:
                then(answer.result())
                return
            self.fence.trouble.error(log, key, "work for %s failed; it is tried again", key, exc_info=error)
            self.services.actor.at(monotonic_ms() + _RETRY_MS, lambda: self.background(key, call, then))

        self.workers.submit(key, call).add_done_callback(lambda done: self.services.actor.tell(partial(answered, done)))

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def add(self, record: JobRecord, *, recovered: bool) -> JobRunner:
        """Adds a job; the caller loads it. The story of a recovered one begins with the takeover."""
        runner = JobRunner(record, self._runner_services)
        self.jobs[record.job_key] = runner
        if recovered:
            if self._detected_unix_us is not None:
                runner.note(self._event(JobEventKind.LEADER_LOSS_DETECTED, self._detected_unix_us))
            runner.note(self._event(JobEventKind.LEADER_GRANTED, self._granted_unix_us))
        if self.suspended:
            runner.handle(ev.Suspended(self.suspended_because))
        return runner

    def _event(self, kind: JobEventKind, at_unix_us: int) -> JobEvent:
        return JobEvent(kind, unix_us=at_unix_us, token=self.token)

    def ended_job(self, job_key: str) -> None:
        """The job has a durable result; its clean-up may begin."""
        runner = self.jobs.pop(job_key)
        self.queries.ended(job_key)
        self.line.through(job_key, has_ended=True)
        self._clean_ups.begin(job_key, runner.record.run_id)
        self._copies.ended(job_key, runner.record.run_id, self._free_slots())
        if runner.result is not None:
            self.results[job_key] = runner.result
            self.fence.meters.jobs_ended.add(runner.result.outcome)
        self.ended[job_key] = runner
        while len(self.ended) > _ENDED_KEPT:
            self.ended.popitem(last=False)

    # -- task managers ------------------------------------------------------------------------------------------------

    def available_slots(self, job_key: str) -> int:
        return self._pool.free_slots + sum(self._pool.held_by(job_key).values())

    def runs(self, job_key: str) -> None:
        self.line.through(job_key)
        self._copies.runs(self.jobs[job_key])
        self._prepare(self.jobs[job_key], [task_manager.task_manager_id for task_manager in self._pool.task_managers()])

    def _prepare(self, runner: JobRunner, task_manager_ids: Iterable[str]) -> None:
        advice = runner.preparation()
        if advice is None:
            return
        for name in task_manager_ids:
            if free := self._pool.free_on(name):
                self.task_managers.send(name, dataclasses.replace(advice, slots=free))

    def _settle_running(self, task_manager: TaskManager) -> None:
        """Passes running attempts to their JobMasters; cancels those of jobs that have ended."""
        for attempt, progress in list(task_manager.running.items()):
            runner = self.jobs.get(attempt.job_key)
            if runner is not None and runner.handles(attempt.run_id):
                still = ev.StillRunning(task_manager.task_manager_id, attempt, progress)
                self.services.actor.tell(partial(runner.handle_of, attempt.run_id, still))
            elif not self.recovering:  # before that, the job may not be listed yet
                self.task_managers.send(task_manager.task_manager_id, CancelAttempt(attempt, "the job has ended"))
                self.slots(AttemptEnded(task_manager.task_manager_id, attempt.job_key, attempt.attempt))

    def task_manager_added(self, task_manager: TaskManager) -> None:
        name = task_manager.task_manager_id
        self._settle_running(task_manager)
        running = tuple(self._claims(task_manager))
        added = (name, task_manager.exchange_address, task_manager.slots, task_manager.incarnation, running)
        self.slots(TaskManagerAdded(*added))
        if task_manager.missed_orders:
            self._copies.added(name)
        for runner in self.jobs.values():
            self._prepare(runner, (name,))

    def _claims(self, task_manager: TaskManager) -> Iterator[RunningAttempt]:
        """The attempts there that may be adopted, of jobs that exist as far as that is known yet; older ones first."""
        for attempt, progress in sorted(task_manager.running.items(), key=lambda item: item[0].attempt):
            runner = self.jobs.get(attempt.job_key)
            is_ours = not self._is_listed if runner is None else runner.handles(attempt.run_id)
            if progress is not None and is_ours and may_go_on(progress):
                slots = len({item.subtask for item in progress.subtasks})
                yield RunningAttempt(attempt.job_key, attempt.attempt, slots)

    def task_manager_lost(self, task_manager: TaskManager, reason: str, *, planned: bool) -> None:
        self.slots(TaskManagerRemoved(task_manager.task_manager_id))  # first, so that its slots are not granted again
        self.queries.lost(task_manager.task_manager_id)
        self._copies.lost(task_manager.task_manager_id)
        for runner in list(self.jobs.values()):
            runner.handle(ev.TaskManagerLost(task_manager.task_manager_id, reason, planned))

    def task_manager_reported(self, task_manager: TaskManager, message: TaskManagerMessage) -> None:
        name = task_manager.task_manager_id
        match message.body:
            case Heartbeat(counters=counters):
                self._count(name, counters)
            case (
                ReportBatch()
                | SubtaskReport()
                | AcknowledgeCheckpoint()
                | DeclineCheckpoint()
                | CheckpointCommitted()
                | FirstRecord()
            ) as body:
                for reported, reports in reports_in(body):
                    self._to(reported, name, *reports)
            case SplitsDiscovered(attempt=attempt) as found:
                self._to(attempt, name, ev.SplitsFound(found))
            case AttemptGone(attempt=attempt) as gone:
                self._to(attempt, name, ev.Gone(name, gone))
                if attempt is not None:
                    self.slots(AttemptEnded(name, attempt.job_key, attempt.attempt))
            case StoryAnswer() as answer:
                self.stories.answer(name, answer)
            case CopiesKept() as kept:
                self._copies.reported(name, kept)
            case StateAnswer() as answer:
                self.queries.answer(name, answer)
            case other:
                log.warning("task manager %s sent an unexpected message: %s", name, other)

    def _to(self, attempt: AttemptId | None, task_manager_id: str, *reports: ev.Report) -> None:
        """Reports of one message on one attempt."""
        if attempt is None:
            return
        runner = self.jobs.get(attempt.job_key)
        if runner is not None and len(reports) == 1:
            runner.handle_of(attempt.run_id, ev.TaskManagerReport(task_manager_id, reports[0]))
        elif runner is not None:
            runner.handle_of(attempt.run_id, ev.TaskManagerReports(task_manager_id, reports))
        elif not self._is_listed:
            kept = (report for report in reports if not isinstance(report, ev.CountersReported))
            self._early += [(attempt, ev.TaskManagerReport(task_manager_id, report)) for report in kept]

    def _count(self, task_manager_id: str, counters: tuple[SubtaskCounters, ...]) -> None:
        by_job: dict[AttemptId, list[SubtaskCounters]] = {}
        for counter in counters:
            if counter.subtask is not None and counter.subtask.attempt is not None:
                by_job.setdefault(counter.subtask.attempt, []).append(counter)
        for attempt, found in by_job.items():
            self._to(attempt, task_manager_id, ev.CountersReported(tuple(found), self._spares(attempt.job_key)))

    def _spares(self, job_key: str) -> tuple[ev.Spare, ...]:
        runner = self.jobs.get(job_key)
        return self._pool.spares(job_key) if runner is not None and runner.wants_spares else ()

    def story(self, job_key: str, run_id: str = "") -> Future[StoryParts] | None:
        """A job's story as far as it was kept; None for an unknown job. run_id: of one that ended before."""
        runner = self.jobs.get(job_key) or self.ended.get(job_key)
        if runner is None and not run_id:
            return None
        lines, remarks = runner.story.lines() if runner is not None and runner.story is not None else ((), ())
        if runner is None or not runner.is_fresh:
            granted = datetime.datetime.fromtimestamp(self._granted_unix_us / 1e6).astimezone()
            begun = f"the grant of token {self.token} to {self.grant.coordinator_id} at {granted:%H:%M:%S}"
            gone = f"The leader's part begins with {begun}: the events of earlier leaders are lost."
            remarks = (gone, *remarks)
        if not lines:
            message = "it has ended" if runner is None else runner.status().message or "it has ended"
            remarks = (*remarks, f"The leader has not run the job: {message}.")
        names = {task_manager.task_manager_id for task_manager in self.task_managers.all() if not task_manager.away}
        run_id = runner.record.run_id if runner is not None else run_id
        return self.stories.ask(job_key, run_id, names, lines, remarks)

    def query(
        self, key: str, checkpoint: CompletedCheckpoint, operators: tuple[OperatorKeys, ...], *, is_newest: bool
    ) -> tuple[CompletedCheckpoint, Future[StateAnswer]]:
        """Reads keys of a completed checkpoint, see StateQueries, and returns the one that answers."""
        present = [each.task_manager_id for each in self.task_managers.all() if not each.away]
        run_id = self.jobs[key].record.run_id if key in self.jobs else ""
        return self.queries.ask(Query(key, run_id, checkpoint, operators, is_newest), present)

    def checkpoint_completed(self, job_key: str) -> None:
        runner = self.jobs.get(job_key)
        known = runner.query(lambda master: master.checkpoints()) if runner is not None else None
        if runner is not None and known is not None and known.newest is not None:
            self.queries.completed(job_key, runner.record.run_id, known.newest)
            self._copies.completed(runner)

    def standby_copies(self, job_key: str) -> StandbyStatus | None:
        return self._copies.status(job_key)

    # -- slots --------------------------------------------------------------------------------------------------------

    def slots(self, event: SlotEvent) -> None:
        """Gives an event to the SlotPool and passes its answers on."""
        if isinstance(event, RequestSlots):
            event = self._copies.preferring(event)
        for effect in self._pool.handle(event, monotonic_ms()):
            match effect:
                case SlotsOffered(job_key) | SlotsMissing(job_key):
                    self._notify(job_key, effect)
                case WakePool(at_ms):
                    if self._pool_timer is not None:
                        self._pool_timer.cancel()
                    self._pool_timer = self.services.actor.at(at_ms, lambda: self.slots(TimePassed()))
                case _:
                    assert_never(effect)
        if isinstance(event, RequestSlots):
            self._absent.look_for(event.addresses)

    def _awaits(self, task_manager_id: str) -> bool:
        return self._pool.awaits(task_manager_id, monotonic_ms())

    def _will_not_come(self, task_manager_id: str) -> None:
        if not self.fence.over.is_set():
            self.slots(TaskManagerEnded(task_manager_id))

    def _notify(self, job_key: str, event: ev.Event) -> None:
        runner = self.jobs.get(job_key)
        if runner is not None:
            runner.tell(event)
        else:
            self.slots(ReleaseSlots(job_key))

    def _free_slots(self) -> dict[str, int]:
        return {found.task_manager_id: found.free_slots for found in self._pool.task_managers()}

    def slot_counts(self) -> tuple[int, ...]:
        """Slots of every registered task manager."""
        return tuple(task_manager.slots for task_manager in self._pool.task_managers())

    def cluster_status(self) -> ClusterStatus:
        """What only the leader knows of the cluster."""
        trouble = (self.suspended_because or "it does not answer") if self.suspended else ""
        task_managers = self.task_manager_statuses()
        return ClusterStatus(task_managers=task_managers, zookeeper_trouble=trouble, leaders=self._leaders.known)

    def task_manager_statuses(self) -> tuple[TaskManagerStatus, ...]:
        """Every registered task manager, by id."""
        pids = {task_manager.task_manager_id: task_manager.pid for task_manager in self.task_managers.all()}
        return task_manager_statuses(self._pool.task_managers(), pids)
