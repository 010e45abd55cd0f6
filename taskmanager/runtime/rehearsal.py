"""Rehearsals: a task manager with free slots performs jobs, so that a real one never meets a cold process.

A task manager that was just started is the spare on which a job may have to go on within a second. The first plan and
the first micro-batches in a fresh JVM take seconds (classes to load, code to compile), the tenth takes milliseconds.
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

from taskmanager.runtime.performances import perform_job, perform_sample
from taskmanager.task.program import ProgramFactory

log = logging.getLogger(__name__)

FIRST_AFTER_S = 1.0
SAMPLES = 6
BUSY_PAUSE_S = 1.0
STOP_S = 5.0
JOBS = 16
REMEMBERED = 64

Running = tuple[AttemptId, ...]
Run = tuple[str, str]  # job key and run id


class Rehearsal:
    """Performs on a thread of its own and stops, between two micro-batches, when something is deployed.

    The sample is performed, and a Python worker started, only while nothing runs here; a job also beside the subtasks
    that do, once each.
    """

    def __init__(self, factory: ProgramFactory, work_dir: str, running: Callable[[], Running]) -> None:
        """running: attempts deployed here."""
        self._factory = factory
        self._work_dir = work_dir
        self._running = running
        self._changed = threading.Condition()
        self._is_stopping = False
        self._samples = SAMPLES
        self._is_python_cold = True
        self._jobs: OrderedDict[Run, PrepareJob] = OrderedDict()  # to be performed
        self._performed: OrderedDict[Run, None] = OrderedDict()  # to their ends, oldest first
        self._thread = threading.Thread(target=self._run, name="rehearsal", daemon=True)

    def start(self) -> None:
        """Begins a second from now, or when there is a job to perform."""
        self._thread.start()

    def learn(self, job: PrepareJob) -> None:
        """A job to perform soon, unless it was before. Returns at once; of very many the newest are kept.

        The leader tells of a job again after each failover and each reconnect. To perform it again would only take
        the processor from the attempt that catches up then.
        """
        if job.attempt is None:
            return
        run = (job.attempt.job_key, job.attempt.run_id)
        with self._changed:
            if run in self._performed:
                # Its plans may have made way for other runs' meanwhile, or more slots be free now. An attempt that
                # comes here then makes some of its plans itself, in a process that is warm.
                return
            self._jobs[run] = job
            while len(self._jobs) > JOBS:
                self._jobs.popitem(last=False)
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends it and waits for its end: at most one micro-batch, or STOP_S where an author's function hangs."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
            if self._thread.is_alive():
                log.warning("the rehearsal did not end in %g s and is left behind", STOP_S)

    def _run(self) -> None:
        self._wait(lambda: bool(self._jobs), FIRST_AFTER_S)
        with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=self._work_dir, ignore_cleanup_errors=True) as folder:
            while not self._is_stopping:
                is_busy = bool(self._running())
                if is_busy:
                    self._samples = 0  # a real job has warmed what a sample would
                    self._is_python_cold = False  # or has no use for it: a job that comes with Python warms it
                if self._jobs:
                    if is_busy:
                        self._wait(lambda: False, BUSY_PAUSE_S)  # what has just been deployed goes first
                    self._perform_job(Path(folder), self._running())
                elif self._samples:
                    self._perform_sample(Path(folder))
                elif self._is_python_cold:
                    self._is_python_cold = False
                    self._factory.warm_python()
                else:
                    self._wait(lambda: bool(self._jobs))

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Until the condition holds, the time is over or the end has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or condition(), timeout_s)

    def _may_go_on(self, running: Running) -> bool:
        """Until something is deployed beside `running`; what ends there is in nobody's way."""
        return not self._is_stopping and set(self._running()) <= set(running)

    def _perform_sample(self, folder: Path) -> None:
        number, self._samples = self._samples, self._samples - 1
        try:
            perform_sample(self._factory, folder, f"sample-{number}", partial(self._may_go_on, ()))
        except Exception as error:  # a nicety: a real job will tell what is wrong in its own words
            log.info("the rehearsal failed: %s", error)
        else:
            log.info("rehearsed the sample, %d more performances to come", self._samples)

    def _perform_job(self, folder: Path, running: Running) -> None:
        with self._changed:
            if self._is_stopping:
                return
            run, job = self._jobs.popitem(last=False)
        try:
            done = perform_job(self._factory, job, folder, partial(self._may_go_on, running))
        except Exception as error:
            self._remember(run)  # it would fail again
            log.info("the rehearsal of job %s failed: %s", run[0], error)
        else:
            if done:
                self._remember(run)
            else:
                self._put_back(run, job)
            log.info("rehearsed job %s: %s", run[0], "its plans are warm" if done else "stopped by a deployment")

    def _remember(self, run: Run) -> None:
        """It was performed. What the leader has said of it meanwhile was the same again."""
        with self._changed:
            self._jobs.pop(run, None)
            self._performed[run] = None
            while len(self._performed) > REMEMBERED:
                self._performed.popitem(last=False)

    def _put_back(self, run: Run, job: PrepareJob) -> None:
        """Another job was deployed: this one's turn comes again. Of its own new attempt the leader tells anew."""
        if run not in {(one.job_key, one.run_id) for one in self._running()}:
            with self._changed:
                self._jobs.setdefault(run, job)
