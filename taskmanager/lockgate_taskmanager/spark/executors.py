"""Whether a Spark cluster gives this application executors, and the error when it does not.

Without executors Spark lets jobs wait for ever and reports it only in its own log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError

from lockgate_taskmanager.spark.errors import EngineError

LOG = logging.getLogger(__name__)
# Spark's setting for how long an application may wait for its executors; its default is 30 s
WAIT_OPTION = "spark.scheduler.maxRegisteredResourcesWaitingTime"
DEFAULT_WAIT = "60s"
_FIRST_WORD_S = 5.0
_REPEAT_S = 15.0
_LOOK_EVERY_S = 1.0


class Executors:
    """The executors of a session with a remote master. Classic sessions only."""

    def __init__(self, session: Any) -> None:
        context = session.sparkContext
        self._master: str = context.master
        self._context = context._jsc.sc()
        conf = self._context.getConf()
        self.wait_s: float = conf.getTimeAsMs(WAIT_OPTION, DEFAULT_WAIT) / 1000
        self._memory: str = conf.get("spark.executor.memory", "1g")
        self._is_dynamic: bool = conf.getBoolean("spark.dynamicAllocation.enabled", False)
        self._ended = threading.Event()

    def await_first(self) -> None:
        """Returns when an executor is available. Raises EngineError when there is none within `wait_s`.

        With dynamic allocation executors are only requested for jobs, so there is nothing to wait for.
        """
        started = time.monotonic()
        patience = _Patience(started)
        while not self._is_dynamic and not self._count():
            now = time.monotonic()
            if self._context.isStopped():
                raise EngineError(f"the Spark master {self._master} has refused the application")
            if now - started > self.wait_s:
                raise EngineError(f"{self._lack()} for {self.wait_s:g} s; start workers, or free some of them")
            if patience.is_over(now):
                LOG.warning("%s so far; waiting", self._lack())
            self._ended.wait(0.05)

    def watch(self, on_lost: Callable[[], object]) -> None:
        """Starts a thread that calls back once when nothing can run here any more.

        This is the case when the application was ended externally, or there has been no executor for `wait_s`: a master
        that has forgotten the application never assigns one again. With dynamic allocation that counts only while jobs
        wait.
        """
        threading.Thread(target=self._watch, args=(on_lost,), name="spark-executor-watch", daemon=True).start()

    def close(self) -> None:
        """Ends the watch."""
        self._ended.set()

    def _watch(self, on_lost: Callable[[], object]) -> None:
        waiting_since: float | None = None
        patience = _Patience(0.0)
        try:
            while not self._ended.wait(_LOOK_EVERY_S):
                now = time.monotonic()
                if self._context.isStopped() and not self._ended.is_set():
                    LOG.critical("the Spark application was ended from outside, by %s", self._master)
                    on_lost()
                    return
                jobs = len(self._context.statusTracker().getActiveJobIds())
                if self._count() or (self._is_dynamic and not jobs):
                    if waiting_since is not None and patience.was_over:
                        LOG.info("an executor is available again")
                    waiting_since = None
                    continue
                if waiting_since is None:
                    waiting_since, patience = now, _Patience(now)
                if now - waiting_since > self.wait_s:
                    LOG.critical("%s for %g s; %d jobs are waiting", self._lack(), self.wait_s, jobs)
                    on_lost()
                    return
                if patience.is_over(now):
                    LOG.warning("%s; %d jobs are waiting", self._lack(), jobs)
        except Py4JError as error:  # the JVM is gone, which is detected elsewhere
            LOG.debug("watching the executors ended: %s", error)

    def _count(self) -> int:
        return int(self._context.getExecutorMemoryStatus().size()) - 1  # the map includes the driver

    def _lack(self) -> str:
        return (
            f"the Spark master {self._master} has given no executor"
            f" (no worker has a free core and {self._memory}, spark.executor.memory)"
        )


class _Patience:
    """Expires after a while, and then at intervals."""

    def __init__(self, started_s: float) -> None:
        self._next_s = started_s + _FIRST_WORD_S
        self.was_over = False

    def is_over(self, now_s: float) -> bool:
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _REPEAT_S
        self.was_over = True
        return True
