"""Warm-ups: a task manager with free slots runs jobs in advance, so that a real job never starts in a cold process.

A task manager that has just started is the spare to which a job may have to fail over within a second. The first plan
and the first micro-batches in a fresh JVM take seconds (class loading, compilation), the tenth takes milliseconds.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lockgate_proto.messages import AttemptId, PrepareJob

from lockgate_taskmanager.runtime.warmup_budget import SHARE, Budget, rest_s
from lockgate_taskmanager.runtime.warmup_jobs import run_batches, run_sample, warm_up_job
from lockgate_taskmanager.task.program import ProgramFactory

log = logging.getLogger(__name__)

FIRST_AFTER_S = 1.0
BUSY_PAUSE_S = 1.0
STOP_S = 5.0
AT_ONCE = 3  # samples at full speed also beside a job: it may have to continue here in some seconds
JOBS = 16
REMEMBERED = 64

Running = tuple[AttemptId, ...]
Run = tuple[str, str]  # job key and run id


class Warmup:
    """Runs warm-ups on a separate thread and stops, between two micro-batches, when an attempt is deployed.

    The sample runs, a Python worker is started, and small micro-batches follow, only while nothing else runs here; a
    job also beside running subtasks, once each.
    """

    def __init__(
        self,
        factory: ProgramFactory,
        work_dir: str,
        running: Callable[[], Running],
        samples: int,
        budget: Budget | None = None,
    ) -> None:
        """running: attempts deployed here; samples: runs of the sample, 0 for neither these nor a Python worker.

        budget: of small micro-batches; None for none.
        """
        self._factory = factory
        self._work_dir = work_dir
        self._running = running
        self._changed = threading.Condition()
        self._is_stopping = False
        self._samples = samples
        self._resting = samples - AT_ONCE  # the last ones of them
        self._is_python_cold = samples > 0
        self._budget = budget or Budget(0)
        self._run_number = 0  # of the small micro-batches
        self._jobs: OrderedDict[Run, PrepareJob] = OrderedDict()  # waiting
        self._performed: OrderedDict[Run, None] = OrderedDict()  # completed, oldest first
        self._thread = threading.Thread(target=self._run, name="warm-up", daemon=True)

    def start(self) -> None:
        """Begins a second from now, or when there is a job to warm up."""
        self._thread.start()

    def learn(self, job: PrepareJob) -> None:
        """Adds a job, unless it was warmed up before. Returns at once; beyond the limit the newest are kept.

        The leader announces a job again after each failover and each reconnect. Running it again would only take the
        processor from the attempt that is catching up.
        """
        if job.attempt is None:
            return
        run = (job.attempt.job_key, job.attempt.run_id)
        with self._changed:
            if run in self._performed:
                # Its plans may have been evicted meanwhile, or more slots may be free now. An attempt deployed here
                # then makes some of its plans itself, in a warm process.
                return
            self._jobs[run] = job
            while len(self._jobs) > JOBS:
                self._jobs.popitem(last=False)
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends it and waits: at most one micro-batch, or STOP_S when an author's function hangs."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
            if self._thread.is_alive():
                log.warning("the warm-up did not end in %g s and is abandoned", STOP_S)

    def _run(self) -> None:
        self._wait(lambda: bool(self._jobs), FIRST_AFTER_S)
        with tempfile.TemporaryDirectory(prefix="warm-up-", dir=self._work_dir, ignore_cleanup_errors=True) as folder:
            while not self._is_stopping:
                is_busy = bool(self._running())
                if is_busy:
                    self._samples = 0  # a real job has already warmed up what a sample would
                    self._budget.close()
                    self._is_python_cold = False  # or a worker is not needed: a job with Python functions starts it
                if self._jobs:
                    if is_busy:
                        self._wait(lambda: False, BUSY_PAUSE_S)  # a new deployment goes first
                    self._warm_up_job(Path(folder), self._running())
                elif self._samples:
                    self._run_sample(Path(folder))
                elif self._is_python_cold:
                    self._is_python_cold = False
                    self._factory.warm_python()
                elif not self._budget.is_used_up:
                    self._run_batches(Path(folder))
                else:
                    self._wait(lambda: bool(self._jobs))

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Until the condition holds, the timeout or the stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or condition(), timeout_s)

    def _should_continue(self, running: Running) -> bool:
        """False once an attempt is deployed beside `running`; attempts that end do not matter."""
        return not self._is_stopping and set(self._running()) <= set(running)

    def _run_sample(self, folder: Path) -> None:
        number, self._samples = self._samples, self._samples - 1

        def rest(took_s: float) -> None:
            if number <= self._resting:
                self._rest(1.0, took_s)

        try:
            run_sample(self._factory, folder, f"sample-{number}", partial(self._should_continue, ()), rest)
        except Exception as error:  # optional: a real job will report the error
            log.info("the warm-up failed: %s", error)
        else:
            log.info("warmed up with the sample, %d more runs to come", self._samples)

    def _rest(self, share: float, took_s: float) -> None:
        """After a step of a warm-up that is not a job's. Ends early when there is a job to warm up."""
        self._wait(lambda: bool(self._jobs), rest_s(took_s, share, bool(self._performed)))

    def _run_batches(self, folder: Path) -> None:
        self._run_number += 1

        def should_continue() -> bool:
            return not self._budget.is_used_up and not self._jobs and self._should_continue(())

        def rest(took_s: float) -> None:
            self._budget.spend(took_s)
            self._rest(SHARE, took_s)

        try:
            count = run_batches(self._factory, folder, f"batches-{self._run_number}", should_continue, rest)
        except Exception as error:  # as above
            self._budget.close()
            log.info("the warm-up failed: %s", error)
        else:
            log.info("warmed up with %d small micro-batches", count)

    def _warm_up_job(self, folder: Path, running: Running) -> None:
        with self._changed:
            if self._is_stopping:
                return
            run, job = self._jobs.popitem(last=False)
        try:
            done = warm_up_job(self._factory, job, folder, partial(self._should_continue, running))
        except Exception as error:
            self._remember(run)  # it would fail again
            log.info("the warm-up of job %s failed: %s", run[0], error)
        else:
            if done:
                self._remember(run)
            else:
                self._put_back(run, job)
            log.info("warmed up job %s: %s", run[0], "its plans are warm" if done else "stopped by a deployment")

    def _remember(self, run: Run) -> None:
        """It was warmed up. Announcements received meanwhile are duplicates."""
        with self._changed:
            self._jobs.pop(run, None)
            self._performed[run] = None
            while len(self._performed) > REMEMBERED:
                self._performed.popitem(last=False)

    def _put_back(self, run: Run, job: PrepareJob) -> None:
        """Another job was deployed: this one's turn comes again.

        The leader announces a new attempt of this job again.
        """
        if run not in {(attempt.job_key, attempt.run_id) for attempt in self._running()}:
            with self._changed:
                self._jobs.setdefault(run, job)
