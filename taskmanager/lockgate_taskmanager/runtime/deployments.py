"""Deployments: which attempts run on this task manager, and what the leader's messages do to them.

A newer attempt of a job replaces an older one: the older one is cancelled at once and the newer one starts without
waiting for it, so that a takeover costs one message and is not delayed by a subtask that hangs in user code.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from lockgate_common.logs import ATTEMPT_ENDED, ATTEMPT_STARTS, about
from lockgate_common.recurring_log import RecurringLog
from lockgate_common.story_log import Outside
from lockgate_proto.codec import MalformedMessage, unknown_field
from lockgate_proto.layout import layout_of
from lockgate_proto.messages import (
    AssignSplits,
    AssignSplitsTogether,
    AttemptGone,
    AttemptId,
    AttemptProgress,
    AwaitPart,
    CancelAttempt,
    DeclineCause,
    DeclineCheckpoint,
    Deploy,
    DiscoverSplits,
    DrainSources,
    FailureCause,
    JobGraph,
    Layout,
    LeaderFailover,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RejoinPart,
    SplitsDiscovered,
    StoryRequest,
    SubtaskCounters,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
)
from lockgate_proto.splits import orders_in

from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.runtime import faults
from lockgate_taskmanager.runtime.background import BackgroundThreads
from lockgate_taskmanager.runtime.ending import end_in_background
from lockgate_taskmanager.runtime.failures import cause_of, text_of
from lockgate_taskmanager.runtime.progress import Progress
from lockgate_taskmanager.runtime.report_batches import ALONE, Company
from lockgate_taskmanager.runtime.source_rest import SourceRest, may_rest
from lockgate_taskmanager.runtime.stories import Stories, SubtaskStory
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.runtime.wiring import Wiring
from lockgate_taskmanager.state.format.split_files import names_in
from lockgate_taskmanager.task.known_splits import SplitListing
from lockgate_taskmanager.task.program import ProgramContext, ProgramError, ProgramFactory

log = logging.getLogger(__name__)

LONG_MS = 5_000  # longer calls of an operator are reported to the leader
REMEMBERED_RUNS = 10_000


class DeployedAttempt:
    """The subtasks of one attempt on this task manager.

    It has background threads of its own, so that storage that hangs for one job does not affect others.
    """

    def __init__(
        self,
        attempt: AttemptId,
        graph: JobGraph,
        subtasks: Sequence[SubtaskId],
        interrupt_user_code: Callable[[int], object],
    ) -> None:
        """interrupt_user_code: interrupts the author's code running in a thread."""
        self.attempt = attempt
        self.graph = graph
        self.tasks: dict[SubtaskId, SubtaskTask] = {}
        self.live: set[SubtaskId] = set()
        self.uploads = BackgroundThreads(max(2, len(subtasks)), "upload", interrupt_user_code)
        self.discoveries = BackgroundThreads(2, "discover", interrupt_user_code)
        self._listings: dict[tuple[str, int], SplitListing] = {}  # by vertex and token
        self._listing: dict[str, threading.Lock] = {}  # by vertex: authors' listers are not called side by side
        is_wanted = graph.leader_failover is LeaderFailover.LEADER_FAILOVER_REATTACH
        self.progress = Progress(attempt, subtasks) if is_wanted else None
        self.is_canceled = False
        # Of the reports of its subtasks.
        self.company = Company.of(len(subtasks), sum(vertex.parallelism for vertex in graph.vertices))

    def listing(self, vertex_id: str, token: int) -> tuple[threading.Lock, SplitListing]:
        """Of the splits reported to the leader with this token. Those of earlier leaders are dropped."""
        for known in [known for known in list(self._listings) if known[0] == vertex_id and known[1] < token]:
            self._listings.pop(known, None)
        lock = self._listing.setdefault(vertex_id, threading.Lock())
        return lock, self._listings.setdefault((vertex_id, token), SplitListing(names_in))

    def release(self) -> None:
        """Releases the background threads; queued work is dropped, and running author code is interrupted."""
        threads = (self.uploads, self.discoveries)
        for thread in threads:
            thread.shutdown(wait=False, cancel_futures=True)
        end_in_background([thread for thread in threads if not thread.join(0)], f"threads-{self._name}")

    def cancel(self, cause_id: str) -> None:
        """Ends every subtask; returns at once. Idempotent. cause_id: of the event that ends them."""
        for task in self.tasks.values():
            task.cancel(cause_id)
        if not self.is_canceled:
            self.is_canceled = True
            end_in_background(tuple(self.tasks.values()), self._name)

    def cancel_part(self, slots: frozenset[int], cause_id: str) -> None:
        """Ends the subtasks in some slots, of which no new leader needs to know; the others run on. Idempotent."""
        part = tuple(task for task in self.tasks.values() if task.id.subtask in slots)
        if self.progress is not None:
            self.progress.forget(task.id for task in part)
        for task in part:
            task.cancel(cause_id)
        if not self.is_canceled:
            end_in_background(part, self._name)

    @property
    def _name(self) -> str:
        return f"{self.attempt.job_key}@{self.attempt.attempt}"


class Reporting(Protocol):
    """Sends a control message body to the leader, never blocks. company: of a report that may wait for others."""

    def __call__(self, body: Any, company: Company = ALONE) -> None:
        """See ControlClient.send."""
        ...


class Deployments:
    """Thread safe. spill_folder: see InputGate; log_bytes: see Wiring; rest: of sources."""

    def __init__(
        self,
        task_manager_id: str,
        factory: ProgramFactory,
        registry: GateRegistry,
        peers: PeerChannels,
        fence: TokenFence,
        report: Reporting,
        stories: Stories,
        spill_folder: str | None = None,
        log_bytes: int = 0,
        rest: SourceRest | None = None,
    ) -> None:
        self._id, self._spill_folder, self._stories = task_manager_id, spill_folder, stories
        self._log_bytes, self._rest = log_bytes, rest or SourceRest()
        self._factory, self._registry, self._peers, self._fence = factory, registry, peers, fence
        self._report = report
        self._lock = threading.Lock()
        self._attempts: dict[AttemptId, DeployedAttempt] = {}
        self._newest: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._trouble = RecurringLog()

    def handle(self, body: Any) -> None:
        """One message of the leader whose token has been checked. Unknown kinds are ignored."""
        attempt: AttemptId | None = getattr(body, "attempt", None)
        with about(
            job=attempt and attempt.job_key,
            attempt=attempt and attempt.attempt,
            checkpoint=getattr(body, "checkpoint_id", 0),
            token=self._fence.highest,
            cause=getattr(body, "cause_id", ""),
        ):
            for order in orders_in(body) if isinstance(body, AssignSplitsTogether) else (body,):
                self._take(order)

    def _take(self, body: Any) -> None:  # noqa: C901  one case a kind
        match body:
            case Deploy():
                self._deploy(body)
            case CancelAttempt(attempt, reason, cause_id, slots) if attempt is not None:
                self._cancel(attempt, reason, cause_id, slots)
            case DiscoverSplits():
                self._discover(body)
            case StoryRequest():
                self._report(self._stories.answer(body))
            case AssignSplits(subtask) if subtask is not None and subtask.attempt is not None:
                deployed = self._deployed(subtask.attempt)
                if deployed is not None and subtask in deployed.tasks:
                    if deployed.progress is not None:
                        deployed.progress.assigned(body)
                    deployed.tasks[subtask].post(body)
            case NotifyCheckpointAborted(attempt):
                self._aborted(body)
            case AwaitPart(attempt) | RejoinPart(attempt):
                for task in self.tasks(attempt).values():
                    task.rejoining.take(body, self._fence.highest, task.outputs)
            case TriggerCheckpoint(attempt) | NotifyCheckpointComplete(attempt) | DrainSources(attempt):
                for task in self.tasks(attempt).values():
                    task.post(body)

    def _aborted(self, order: NotifyCheckpointAborted) -> None:
        """Subtasks that could not take part yet say so at once: their own thread may be in a long batch."""
        deployed = self._deployed(order.attempt)
        for task in list(deployed.tasks.values()) if deployed is not None else ():
            if deployed is not None and task.gate.is_replaying:
                reason = "records in flight from before the change of parallelism are still being processed"
                declined = DeclineCheckpoint(task.id, order.checkpoint_id, reason, DeclineCause.REPLAYING)
                self._report_of(deployed, declined)
            task.post(order)

    def running(self) -> tuple[AttemptId, ...]:
        """Attempts that still have running subtasks here."""
        with self._lock:
            return tuple(self._attempts)

    def progress(self) -> tuple[AttemptProgress, ...]:
        """How far the subtasks of the running attempts are that a new leader may adopt.

        Those of which there is too much to say are left out.
        """
        with self._lock:
            running = [deployed for deployed in self._attempts.values() if not deployed.is_canceled]
        kept = (
            deployed.progress.message({task.id: task.effort.counters for task in list(deployed.tasks.values())})
            for deployed in running
            if deployed.progress is not None
        )
        return tuple(message for message in kept if message is not None)

    def counters(self) -> tuple[SubtaskCounters, ...]:
        """Records in and out of every live subtask, as it last noted them, and its load. For one thread."""
        found = []
        for task in self.live_tasks():
            effort, program = task.effort, task.program
            work = program.at_work() if program is not None else None
            if work is None or work.since_ms < LONG_MS:
                work = None
            if effort.counters or work is not None:
                what, since_ms = (work.what, work.since_ms) if work is not None else ("", 0)
                news, gap = task.load.news(), task.rejoining.gap(task.outputs)
                why = program.irreproducible if program is not None else ""
                found.append(SubtaskCounters(task.id, effort.counters, effort.total, what, since_ms, news, gap, why))
        return tuple(found)

    def live_tasks(self) -> list[SubtaskTask]:
        """The subtasks that have not ended, of older attempts first."""
        with self._lock:
            return [
                task
                for attempt in self._attempts.values()
                for task in attempt.tasks.values()
                if task.id in attempt.live
            ]

    def cancel_all(self, reason: str) -> None:
        """Ends every attempt; the next leader starts their jobs again from their snapshots. Returns at once."""
        for attempt in self.running():
            self._cancel(attempt, reason, Outside.PROCESS)

    def stop(self, timeout_s: float) -> bool:
        """Cancels everything and waits. False when subtasks are still running."""
        with self._lock:
            attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel(Outside.PROCESS)
        tasks = [task for attempt in attempts for task in attempt.tasks.values()]
        deadline = time.monotonic() + timeout_s
        ended = [task.join(max(0.0, deadline - time.monotonic())) for task in tasks]
        return all(ended)

    def tasks(self, attempt: AttemptId | None) -> dict[SubtaskId, SubtaskTask]:
        """The subtasks of an attempt here, including ended ones while any is live; empty when it is unknown."""
        deployed = self._deployed(attempt)
        return dict(deployed.tasks) if deployed is not None else {}

    def _deployed(self, attempt: AttemptId | None) -> DeployedAttempt | None:
        with self._lock:
            return self._attempts.get(attempt) if attempt is not None else None

    def _report_of(self, deployed: DeployedAttempt, body: Any) -> None:
        if deployed.progress is not None:
            deployed.progress.reported(body)
        self._report(body, deployed.company)

    def _deploy(self, deploy: Deploy) -> None:
        faults.point("on-deploy")
        attempt = deploy.attempt
        if attempt is None:
            log.warning("a deployment without attempt is ignored")
            return
        try:
            wiring = Wiring(attempt, layout_of(deploy), self._id, self._log_bytes)
        except MalformedMessage as error:
            log.error("the deployment of attempt %d of %s is ignored: %s", attempt.attempt, attempt.job_key, error)
            return
        names = ", ".join(f"{subtask.vertex_id}[{subtask.subtask}]" for subtask in wiring.here)
        text, number = f"attempt {attempt.attempt} is deployed", deploy.restored_checkpoint_id
        start = (f"start {names}{f' from checkpoint {number}' if number else ''}",)
        event_id = self._stories.add(attempt, text, deploy.cause_id or Outside.LEADER, start)
        if not self._admit(attempt, deploy.beside, event_id):
            return
        deployed = DeployedAttempt(attempt, wiring.graph, wiring.here, self._factory.interrupt_user_code)
        if problem := unknown_field(Layout, deploy.layout):
            log.error("attempt %d of %s is refused: %s", attempt.attempt, attempt.job_key, problem)
            self._refuse(deployed, wiring.here, problem, event_id)
            return
        try:
            self._wire(deployed, deploy, wiring, event_id)
        except Exception as error:
            log.exception("attempt %d of %s cannot be deployed", attempt.attempt, attempt.job_key)
            self._refuse(deployed, wiring.here, text_of(error), event_id)
            return
        with self._lock:
            self._attempts[attempt] = deployed
        tasks = list(deployed.tasks.values())
        log.info(ATTEMPT_STARTS, attempt.attempt, attempt.job_key, len(tasks))
        for task in tasks:
            task.start()
        if not tasks:
            self._forget_attempt(deployed, event_id)

    def _admit(self, attempt: AttemptId, beside: Sequence[int], event_id: str) -> bool:
        """Cancels what the attempt replaces. False when it is itself replaced, or was deployed before.

        beside: earlier attempts of the run that it does not replace.
        """
        run = (attempt.job_key, attempt.run_id)
        stay = {replace(attempt, attempt=number) for number in beside}
        with self._lock:
            newest = self._newest.get(run, 0)
            if attempt.attempt > newest:
                self._note_newest(run, attempt.attempt)
            of_job = {known: deployed for known, deployed in self._attempts.items() if known.job_key == attempt.job_key}
            is_running = attempt in self._attempts
        if attempt.attempt <= newest:
            log.info(
                "deployment of attempt %d of %s is ignored: %d was deployed before",
                attempt.attempt,
                attempt.job_key,
                newest,
            )
            self._stories.add(attempt, f"that is ignored: attempt {newest} was deployed before", event_id)
            if not is_running:
                self._report(AttemptGone(attempt, event_id))
            return False
        for deployed in [deployed for known, deployed in of_job.items() if known not in stay]:
            replaced = deployed.attempt
            log.info("attempt %d of %s is replaced by %d", replaced.attempt, replaced.job_key, attempt.attempt)
            deployed.cancel(event_id)
        return True

    def _wire(self, deployed: DeployedAttempt, deploy: Deploy, wiring: Wiring, event_id: str) -> None:
        log_of_run = self._stories.of(deployed.attempt)
        restore = {(state.vertex_id, state.subtask): state for state in deploy.restore}
        parallelism = wiring.parallelism
        pause = partial(self._rest.pause, self._fence.highest) if may_rest(deployed.graph) else lambda: None
        for subtask in wiring.here:
            context = ProgramContext(
                subtask,
                deployed.graph,
                deploy.checkpoint_directory,
                restore.get((subtask.vertex_id, subtask.subtask)),
                deploy.restored_checkpoint_id,
                parallelism,
                is_beside=bool(wiring.layout.began),
            )
            deployed.tasks[subtask] = SubtaskTask(
                context,
                wiring.inputs(subtask),
                self._factory,
                deployed.uploads,
                partial(self._report_of, deployed),
                lambda task: self._ended(deployed, task),
                SubtaskStory(log_of_run, subtask, event_id),
                self._spill_folder,
                lambda: self._fence.highest,  # a later leader may adopt the attempt
                pause,
            )
        gates = {subtask: task.gate for subtask, task in deployed.tasks.items()}
        for subtask, task in deployed.tasks.items():
            channels = (self._peers, self._fence.highest, task.peer_lost, task.on_writable, task.rejoining.absent)
            task.connect(wiring.outputs(subtask, gates, *channels, deploy.restored_checkpoint_id))
        for subtask, gate in gates.items():
            self._registry.register(subtask, gate)
        deployed.live = set(deployed.tasks)

    def _refuse(self, deployed: DeployedAttempt, subtasks: tuple[SubtaskId, ...], reason: str, event_id: str) -> None:
        deployed.release()
        self._stories.add(deployed.attempt, f"that has failed: {reason}", event_id)
        for subtask in subtasks:
            self._registry.unregister(subtask)
            self._report(
                SubtaskReport(subtask, SubtaskPhase.SUBTASK_FAILED, FailureCause.FAULT, reason, cause_id=event_id)
            )
        self._report(AttemptGone(deployed.attempt, event_id))

    def _cancel(self, attempt: AttemptId, reason: str, cause_id: str, slots: Sequence[int] = ()) -> None:
        """slots: see CancelAttempt."""
        run = (attempt.job_key, attempt.run_id)
        with self._lock:
            deployed = self._attempts.get(attempt)
            if attempt.attempt > self._newest.get(run, 0):
                self._note_newest(run, attempt.attempt)  # a deployment of it that comes late is refused
        text = f"attempt {attempt.attempt} is cancelled: {reason or 'no reason given'}"
        event_id = self._stories.add(attempt, text, cause_id or Outside.LEADER)
        if deployed is None:
            self._report(AttemptGone(attempt, event_id))
            return
        log.info("attempt %d of %s is cancelled: %s", attempt.attempt, attempt.job_key, reason or "no reason given")
        if slots:
            deployed.cancel_part(frozenset(slots), event_id)
        else:
            deployed.cancel(event_id)

    def _note_newest(self, run: tuple[str, str], attempt: int) -> None:
        self._newest[run] = attempt
        self._newest.move_to_end(run)
        while len(self._newest) > REMEMBERED_RUNS:
            self._newest.popitem(last=False)

    def _ended(self, deployed: DeployedAttempt, task: SubtaskTask) -> None:
        self._registry.unregister(task.id)
        with self._lock:
            deployed.live.discard(task.id)
            is_gone = not deployed.live
        if is_gone:
            self._forget_attempt(deployed, task.last_event_id)

    def _forget_attempt(self, deployed: DeployedAttempt, event_id: str) -> None:
        """event_id: the last event that happened to it here."""
        with self._lock:
            self._attempts.pop(deployed.attempt, None)
        self._registry.forget(deployed.attempt)
        deployed.release()
        log.info(ATTEMPT_ENDED, deployed.attempt.attempt, deployed.attempt.job_key)
        self._report(AttemptGone(deployed.attempt, event_id))

    def _discover(self, request: DiscoverSplits) -> None:
        attempt = request.attempt
        deployed = self._deployed(attempt)
        if deployed is None or attempt is None:
            return
        try:
            deployed.discoveries.submit(self._list_splits, deployed, request, self._fence.highest)
        except RuntimeError:
            log.info("attempt %d of %s ended before its splits were listed", attempt.attempt, attempt.job_key)

    def _list_splits(self, deployed: DeployedAttempt, request: DiscoverSplits, token: int) -> None:
        """token: of the leader. An earlier one may not have assigned the splits that were reported to it."""
        try:
            lock, listing = deployed.listing(request.vertex_id, token)
            with lock:  # a request may arrive twice
                found = listing.answer(
                    request, lambda known: self._factory.discover(deployed.graph, request.vertex_id, known)
                )
            answer = SplitsDiscovered(deployed.attempt, request.vertex_id, *found, round=request.round)
            text = f"new splits of {request.vertex_id}: {len(answer.splits)}"
        except Exception as error:
            self._warn_of_listing(request, error)
            answer = SplitsDiscovered(
                deployed.attempt,
                request.vertex_id,
                error=text_of(error),
                cause=cause_of(error),
                round=request.round,
            )
            text = f"the splits of {request.vertex_id} cannot be listed: {answer.error}"
        event_id = self._stories.add(deployed.attempt, text, request.cause_id or Outside.LEADER)
        self._report(replace(answer, cause_id=event_id))

    def _warn_of_listing(self, request: DiscoverSplits, error: Exception) -> None:
        """Sources list again and again. A source that is away needs no traceback."""
        where = request.attempt.job_key if request.attempt is not None else ""
        trace = None if isinstance(error, ProgramError | OSError) else error
        text = "the splits of %s of job %s cannot be listed: %s"
        what = (request.vertex_id, where, text_of(error))
        self._trouble.warning(log, f"splits of {request.vertex_id} of {where}", text, *what, exc_info=trace)
