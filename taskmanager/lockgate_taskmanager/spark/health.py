"""Checks whether Spark still runs jobs, in a JVM that is alive.

A SparkContext can be stopped, or its block manager lost, while the JVM lives on: then every attempt here fails at once,
and its slots are offered again. So the smallest possible job runs from time to time while Spark is idle, and whenever a
subtask has failed.

trusted --idle for IDLE_S, or a subtask failed--> checking --the job ran--> trusted
checking --TRIES failures--> lost
trusted --the context was stopped--> lost
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from lockgate_taskmanager.spark.jobs import Jobs

LOG = logging.getLogger(__name__)

IDLE_S = 30.0
TRIES = 3
_LOOK_EVERY_S = 1.0
_PAUSE_S = 1.0  # pause between two tries: Spark may be short of memory for a moment


class Health:
    """For one classic session with its own JVM. connect.ServerWatch covers Connect servers."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._context = session.sparkContext._jsc.sc()
        self._changed = threading.Condition()
        self._is_suspect = False
        self._ended = False

    def watch(self, on_lost: Callable[[str], object]) -> None:
        """Starts a thread that calls back once, with a sentence, when nothing can run here any more."""
        threading.Thread(target=self._watch, args=(on_lost,), name="spark-health", daemon=True).start()

    def suspect(self) -> None:
        """A subtask has failed here: checks Spark soon. Returns at once."""
        with self._changed:
            self._is_suspect = True
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the watch."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _watch(self, on_lost: Callable[[str], object]) -> None:
        jobs = Jobs(self._session, "lockgate:health", "health of the task manager")
        try:
            proved_s = time.monotonic()
            while not self._wait(_LOOK_EVERY_S, until_suspect=True):
                reason = "its SparkContext was stopped" if self._context.isStopped() else ""
                if not reason and self._is_due(proved_s):
                    self._is_suspect = False
                    jobs.adopt_thread()
                    reason = self._ask()
                    proved_s = time.monotonic()
                    if not reason:
                        self._wait(_PAUSE_S)  # many failures per second do not cause more checks than that
                if reason and not self._ended:
                    on_lost(f"Spark can no longer run jobs here: {reason}")
                    return
        except Py4JError as error:  # the JVM is gone, which is detected elsewhere
            LOG.debug("watching Spark ended: %s", error)

    def _is_due(self, proved_s: float) -> bool:
        if self._is_suspect:
            return True
        if time.monotonic() - proved_s < IDLE_S:
            return False
        return not self._context.statusTracker().getActiveJobIds()  # jobs that run are sufficient proof

    def _ask(self) -> str:
        """Why Spark counts as lost; "" when it does not."""
        reason = ""
        for _ in range(TRIES):
            try:
                self._session.range(0, 1, 1, 1).count()
            except Py4JNetworkError:
                raise
            except Exception as error:  # any error of Spark
                reason = f"the health check job fails: {_line(error)}"
                LOG.warning("Spark may be lost: %s", reason)
            else:
                return ""
            if self._wait(_PAUSE_S):
                return ""
        return reason

    def _wait(self, timeout_s: float, *, until_suspect: bool = False) -> bool:
        """True when the watch should end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (until_suspect and self._is_suspect), timeout_s)
            return self._ended


def _line(error: Exception) -> str:
    """Spark's error message in one line."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    return (text.splitlines() or [type(error).__name__])[0]
