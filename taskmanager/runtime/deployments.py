"""Deployments: which attempts run on this task manager, and what the leader's messages do to them.

A newer attempt of a job replaces an older one by itself: the older one is cancelled at once and the newer one starts
without waiting for it, so that a takeover costs one message and a subtask stuck in user code holds nobody up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lockgate_proto.messages import (
    AssignSplits,
    AttemptGone,
    AttemptId,
    CancelAttempt,
    Deploy,
    DiscoverSplits,
    DrainSources,
    FailureCause,
    JobGraph,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    SplitsDiscovered,
    SubtaskCounters,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
)

from taskmanager.exchange.fencing import TokenFence
from taskmanager.exchange.peers import PeerChannels
from taskmanager.exchange.registry import GateRegistry
from taskmanager.runtime import faults
from taskmanager.runtime.background import BackgroundThreads
from taskmanager.runtime.ending import end_in_background
from taskmanager.runtime.failures import cause_of, text_of
from taskmanager.runtime.subtask_task import SubtaskTask
from taskmanager.runtime.wiring import Wiring
from taskmanager.task.program import ProgramContext, ProgramFactory

log = logging.getLogger(__name__)

LONG_MS = 5_000  # a call of an operator that takes longer is told to the leader
REMEMBERED_RUNS = 10_000


class DeployedAttempt:
    """The subtasks of one attempt on this task manager.

    Its background threads are its own, so that storage that hangs for one job leaves the others alone.
    """

    def __init__(self, attempt: AttemptId, graph: JobGraph, subtask_count: int) -> None:
        self.attempt = attempt
        self.graph = graph
        self.tasks: dict[SubtaskId, SubtaskTask] = {}
        self.live: set[SubtaskId] = set()
        self.uploads = BackgroundThreads(max(2, subtask_count), "upload")
        self.discoveries = BackgroundThreads(2, "discover")
        self._is_canceled = False

    def release(self) -> None:
        """Gives the background threads back; what has not begun never will."""
        self.uploads.shutdown(wait=False, cancel_futures=True)
        self.discoveries.shutdown(wait=False, cancel_futures=True)

    def cancel(self) -> None:
        """Ends every subtask; returns at once. Idempotent."""
        for task in self.tasks.values():
            task.cancel()
        if not self._is_canceled:
            self._is_canceled = True
            end_in_background(tuple(self.tasks.values()), f"{self.attempt.job_key}@{self.attempt.attempt}")


class Deployments:
    """Thread safe. report: sends a control message body to the leader, never blocks. spill_folder: see InputGate."""

    def __init__(
        self,
        task_manager_id: str,
        factory: ProgramFactory,
        registry: GateRegistry,
        peers: PeerChannels,
        fence: TokenFence,
        report: Callable[[Any], None],
        spill_folder: str | None = None,
    ) -> None:
        self._id, self._spill_folder = task_manager_id, spill_folder
        self._factory, self._registry, self._peers, self._fence = factory, registry, peers, fence
        self._report = report
        self._lock = threading.Lock()
        self._attempts: dict[AttemptId, DeployedAttempt] = {}
        self._newest: OrderedDict[tuple[str, str], int] = OrderedDict()

    def handle(self, body: Any) -> None:
        """One message of the leader whose token has been checked. Unknown kinds are ignored."""
        match body:
            case Deploy():
                self._deploy(body)
            case CancelAttempt(attempt, reason) if attempt is not None:
                self._cancel(attempt, reason)
            case DiscoverSplits():
                self._discover(body)
            case AssignSplits(subtask) if subtask is not None and subtask.attempt is not None:
                task = self.tasks(subtask.attempt).get(subtask)
                if task is not None:
                    task.post(body)
            case (
                TriggerCheckpoint(attempt)
                | NotifyCheckpointComplete(attempt)
                | NotifyCheckpointAborted(attempt)
                | DrainSources(attempt)
            ):
                for task in self.tasks(attempt).values():
                    task.post(body)

    def running(self) -> tuple[AttemptId, ...]:
        """Attempts of which something still runs here."""
        with self._lock:
            return tuple(self._attempts)

    def counters(self) -> tuple[SubtaskCounters, ...]:
        """Records in and out of every live subtask, as last noted by it."""
        with self._lock:
            tasks = [task for one in self._attempts.values() for task in one.tasks.values() if task.id in one.live]
        told = ((task, task.at_work()) for task in tasks)
        return tuple(
            SubtaskCounters(task.id, task.counters, task.effort.total, work.what, work.since_ms)
            if work is not None and work.since_ms >= LONG_MS
            else SubtaskCounters(task.id, task.counters, task.effort.total)
            for task, work in told
            if task.counters or (work is not None and work.since_ms >= LONG_MS)
        )

    def stop(self, timeout_s: float) -> bool:
        """Cancels everything and waits. False when something is still running."""
        with self._lock:
            attempts = list(self._attempts.values())
        for one in attempts:
            one.cancel()
        tasks = [task for one in attempts for task in one.tasks.values()]
        deadline = time.monotonic() + timeout_s
        ended = [task.join(max(0.0, deadline - time.monotonic())) for task in tasks]
        return all(ended)

    def tasks(self, attempt: AttemptId | None) -> dict[SubtaskId, SubtaskTask]:
        """The subtasks of an attempt here, ended ones too while any is live; empty when it is unknown."""
        with self._lock:
            deployed = self._attempts.get(attempt) if attempt is not None else None
            return dict(deployed.tasks) if deployed is not None else {}

    def _deploy(self, deploy: Deploy) -> None:
        faults.point("on-deploy")
        attempt = deploy.attempt
        if attempt is None or deploy.graph is None:
            log.warning("a deployment without attempt or graph is ignored")
            return
        if not self._admit(attempt):
            return
        wiring = Wiring(deploy, self._id)
        deployed = DeployedAttempt(attempt, deploy.graph, len(wiring.here()))
        try:
            self._wire(deployed, deploy, wiring)
        except Exception as error:
            log.exception("attempt %d of %s cannot be deployed", attempt.attempt, attempt.job_key)
            self._refuse(deployed, wiring.here(), text_of(error))
            return
        with self._lock:
            self._attempts[attempt] = deployed
        tasks = list(deployed.tasks.values())
        log.info("attempt %d of %s: %d subtasks start", attempt.attempt, attempt.job_key, len(tasks))
        for task in tasks:
            task.start()
        if not tasks:
            self._gone(deployed)

    def _admit(self, attempt: AttemptId) -> bool:
        """Cancels what the attempt replaces. False when it is itself replaced, or was deployed before."""
        run = (attempt.job_key, attempt.run_id)
        with self._lock:
            newest = self._newest.get(run, 0)
            if attempt.attempt > newest:
                self._note_newest(run, attempt.attempt)
            older = [one for known, one in self._attempts.items() if known.job_key == attempt.job_key]
            is_running = attempt in self._attempts
        if attempt.attempt <= newest:
            log.info("deployment of attempt %d of %s is ignored, %d was here", attempt.attempt, attempt.job_key, newest)
            if not is_running:
                self._report(AttemptGone(attempt))
            return False
        for one in older:
            log.info("attempt %d of %s is replaced by %d", one.attempt.attempt, one.attempt.job_key, attempt.attempt)
            one.cancel()
        return True

    def _wire(self, deployed: DeployedAttempt, deploy: Deploy, wiring: Wiring) -> None:
        restore = {(state.vertex_id, state.subtask): state for state in deploy.restore}
        parallelism = wiring.parallelism
        for subtask in wiring.here():
            context = ProgramContext(
                subtask,
                deployed.graph,
                deploy.checkpoint_directory,
                restore.get((subtask.vertex_id, subtask.subtask)),
                deploy.restored_checkpoint_id,
                parallelism,
            )
            deployed.tasks[subtask] = SubtaskTask(
                context,
                wiring.inputs(subtask),
                self._factory,
                deployed.uploads,
                self._report,
                lambda task: self._ended(deployed, task),
                self._spill_folder,
            )
        gates = {subtask: task.gate for subtask, task in deployed.tasks.items()}
        for subtask, task in deployed.tasks.items():
            outputs = wiring.outputs(subtask, gates, self._peers, self._fence.highest, task.peer_lost, task.on_room)
            task.connect(outputs)
        for subtask, gate in gates.items():
            self._registry.register(subtask, gate)
        deployed.live = set(deployed.tasks)

    def _refuse(self, deployed: DeployedAttempt, subtasks: tuple[SubtaskId, ...], reason: str) -> None:
        deployed.release()
        for subtask in subtasks:
            self._registry.unregister(subtask)
            self._report(SubtaskReport(subtask, SubtaskPhase.SUBTASK_FAILED, FailureCause.FAULT, reason))
        self._report(AttemptGone(deployed.attempt))

    def _cancel(self, attempt: AttemptId, reason: str) -> None:
        run = (attempt.job_key, attempt.run_id)
        with self._lock:
            deployed = self._attempts.get(attempt)
            if attempt.attempt > self._newest.get(run, 0):
                self._note_newest(run, attempt.attempt)  # a deployment of it that comes late is refused
        if deployed is None:
            self._report(AttemptGone(attempt))
            return
        log.info("attempt %d of %s is cancelled: %s", attempt.attempt, attempt.job_key, reason or "no reason given")
        deployed.cancel()

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
            self._gone(deployed)

    def _gone(self, deployed: DeployedAttempt) -> None:
        with self._lock:
            self._attempts.pop(deployed.attempt, None)
        self._registry.forget(deployed.attempt)
        deployed.release()
        log.info("attempt %d of %s is gone", deployed.attempt.attempt, deployed.attempt.job_key)
        self._report(AttemptGone(deployed.attempt))

    def _discover(self, request: DiscoverSplits) -> None:
        attempt = request.attempt
        with self._lock:
            deployed = self._attempts.get(attempt) if attempt is not None else None
        if deployed is None or attempt is None:
            return
        try:
            deployed.discoveries.submit(self._list_splits, deployed, request)
        except RuntimeError:
            log.info("attempt %d of %s ended before its splits were listed", attempt.attempt, attempt.job_key)

    def _list_splits(self, deployed: DeployedAttempt, request: DiscoverSplits) -> None:
        try:
            splits, is_complete = self._factory.discover(deployed.graph, request.vertex_id, request.known)
            answer = SplitsDiscovered(deployed.attempt, request.vertex_id, tuple(splits), is_complete)
        except Exception as error:
            log.info("splits of %s cannot be listed", request.vertex_id, exc_info=error)
            answer = SplitsDiscovered(deployed.attempt, request.vertex_id, error=text_of(error), cause=cause_of(error))
        self._report(answer)
