"""Decides when a new leader recovers each job, and which jobs it holds back. Actor thread only.

    entered --no leader died of it--> begun, concurrently ------+--> through
       |----leaders died meanwhile--> in line --its turn--> begun
       +----MAX_DEATHS of them--> held back --released by a client--> begun

A job can be poison: if its recovery crashes the leader's process, it crashes the next leader as well. So the recoveries
that were begun and not finished are counted in ZooKeeper, under the job's node. A recovery is through when every
subtask runs, or when the leader has survived the job for SETTLED_MS: jobs that wait for slots do no harm.

A leader that is stopped removes its marks. When one crashes, all jobs that it was recovering are suspects. The next
leader recovers these one at a time, so that another crash identifies the culprit, and only that is counted.

Leaders also die one after the other for reasons of their own, and a healthy job would be held back for that. So before
a recovery whose death would be the last one allowed, the leader survives for PROVEN_MS without the job. One that dies
meanwhile has not died of it, and nothing is counted; the tasks of an attempt that can be adopted run on. A job that is
poison only ever ends leaders that were in good health until they touched it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from lockgate_common.clock import monotonic_ms
from lockgate_proto.messages import JobState

from lockgate_coordinator.runtime.actor import Actor, Timer
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.requests import settle
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_coordinator.runtime.workers import WorkerGroup

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_DEATHS = 3
"""The number of consecutive leaders that may die while recovering a job before it is held back."""

SETTLED_MS = 5_000
PROVEN_MS = 5_000
"""How long a leader lives before it recovers a job that may be held back if it dies of it."""


class RecoveryLine:
    """The recoveries of one term."""

    def __init__(self, fence: TermFence, actor: Actor, workers: WorkerGroup, persistence: Persistence) -> None:
        """workers: those on which the jobs' records are read."""
        self._fence = fence
        self._actor = actor
        self._workers = workers
        self._persistence = persistence
        self._begun: dict[str, Timer | None] = {}  # by job key; None: its mark is being written
        self._deaths: dict[str, int] = {}  # of those begun, before this term
        self._suspects: list[tuple[JobRunner, int]] = []
        self._begun_ms = monotonic_ms()  # the term
        self._is_proven = False  # the leader has survived for PROVEN_MS
        self._proof: Timer | None = None
        self._first: str | None = None  # the suspect whose turn it is
        self._is_withdrawn = False

    def enter(self, runner: JobRunner, deaths: int) -> None:
        """Loads a job of an earlier leader, now or in its turn, or holds it back.

        deaths: leaders in a row that died while they recovered it.
        """
        if deaths >= MAX_DEATHS:
            runner.hold_back(
                f"{deaths} leaders in a row died while they recovered this job, so it is held back to keep the other "
                f"jobs running. The coordinators' logs say where they ended. `lockgate release {runner.key}` tries it "
                f"again, `lockgate cancel {runner.key}` ends it; its snapshots stay."
            )
        elif deaths:
            log.warning("job %s: %s leaders died while they recovered it; it waits its turn", runner.key, deaths)
            if deaths >= MAX_DEATHS - 1:
                runner.wait(f"{deaths} leaders in a row died while they recovered it: this one lives without it first")
            self._suspects.append((runner, deaths))
            self._next()
        else:
            self._begin(runner, deaths)

    def through(self, key: str, *, has_ended: bool = False) -> None:
        """The leader has survived the job's recovery. has_ended: the job has ended, and its records will be deleted."""
        timer = self._begun.pop(key, None)
        self._deaths.pop(key, None)
        if timer is not None:
            timer.cancel()
            if not has_ended:
                self._work(key, partial(self._persistence.clear_recovery_count, key))
        if self._first == key:
            self._first = None
            self._next()

    def withdraw(self) -> list[Future[None]]:
        """The term ends as planned: begins no recovery any more, and removes the marks of unfinished ones, which have
        not crashed the leader.

        Each write follows the pending work of its job, so a job that hangs stays marked.
        """
        self._is_withdrawn = True
        if self._proof is not None:
            self._proof.cancel()
        timers, self._begun = self._begun, {}
        for timer in timers.values():
            if timer is not None:
                timer.cancel()
        return [self._work(key, partial(self._take_back, key, self._deaths.pop(key, 0))) for key in timers]

    def _take_back(self, key: str, deaths: int) -> None:
        """Called on a worker."""
        if deaths:
            self._persistence.note_recovery(key, deaths)
        else:
            self._persistence.clear_recovery_count(key)

    def release(self, runner: JobRunner) -> Future[JobState]:
        """Releases a job that is held back; answers when that is durable. Any other job stays as it is.

        Fails with StoreError, Stopped; try again.
        """
        answer: Future[JobState] = Future()
        if not runner.is_held:
            answer.set_result(runner.status().state)
            return answer
        forget = partial(self._persistence.clear_recovery_count, runner.key)
        done = self._work(runner.key, forget, lambda _: self._released(runner))
        done.add_done_callback(lambda written: settle(answer, written, JobState.WAITING_FOR_SLOTS))
        return answer

    def _released(self, runner: JobRunner) -> None:
        if runner.is_held:  # else it was cancelled meanwhile, or released twice
            log.warning("job %s is released: its recovery begins", runner.key)
            runner.is_held = False
            self._begin(runner, 0)

    def _next(self) -> None:
        """Begins with the suspect that the fewest leaders have died of, unless one is being recovered."""
        if self._first is not None or not self._suspects:
            return
        runner, deaths = min(self._suspects, key=lambda suspect: suspect[1])
        if deaths >= MAX_DEATHS - 1 and not self._is_proven:
            if self._proof is None:
                self._proof = self._actor.at(self._begun_ms + PROVEN_MS, self._prove)
            return
        self._suspects.remove((runner, deaths))
        self._first = runner.key
        self._begin(runner, deaths)

    def _prove(self) -> None:
        if not self._fence.over.is_set():
            self._is_proven = True
            self._next()

    def _begin(self, runner: JobRunner, deaths: int) -> None:
        """Marks the recovery durably before anything of the job is read: one worker does both, in this order."""
        if self._is_withdrawn:
            return
        self._begun[runner.key], self._deaths[runner.key] = None, deaths
        mark = partial(self._persistence.note_recovery, runner.key, deaths + 1)
        self._work(runner.key, mark, lambda _: self._marked(runner), lambda: self._marked(runner))
        runner.load(fresh=False)

    def _marked(self, runner: JobRunner) -> None:
        if runner.key in self._begun:  # else it has ended meanwhile
            due_ms = monotonic_ms() + SETTLED_MS
            self._begun[runner.key] = self._actor.at(due_ms, partial(self.through, runner.key))

    def _work(
        self,
        key: str,
        call: Callable[[], T],
        then: Callable[[T], None] | None = None,
        failed: Callable[[], None] | None = None,
    ) -> Future[T]:
        """failed: called after an error; the count is only a safeguard, so no job waits for it."""

        def answered(answer: Future[T]) -> None:
            error = answer.exception()
            if error is None and then is not None:
                self._post(partial(then, answer.result()))
            elif error is not None and not isinstance(error, Stopped):
                log.error("job %s: the marks of its recoveries cannot be read or written", key, exc_info=error)
                if failed is not None:
                    self._post(failed)

        work = self._workers.submit(key, call)
        work.add_done_callback(answered)
        return work

    def _post(self, call: Callable[[], None]) -> None:
        self._actor.tell(lambda: None if self._fence.over.is_set() else call())
