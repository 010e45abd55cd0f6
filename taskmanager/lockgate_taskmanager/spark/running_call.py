"""The call that a program is running, and its interruption from another thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lockgate_taskmanager.spark import user_code
from lockgate_taskmanager.task.program import Canceled, ProgramError

LOG = logging.getLogger(__name__)

_SHORT_S = 0.1  # what Spark needs to end a job, on a machine that is busy with a restart
_NO_JOB_S = 0.005  # less than Spark needs for a job: a tick, or a poll without records
_RECENT = 8  # calls: most are micro-batches, some only commit
_PLANNING_S = 1.0  # a cancelled call that is making a plan has usually finished by then
_STUCK_S = 60.0  # a batch takes a fraction of a second
_CLOSING_S = 4.0  # the author's close() may still have to send something; the leader calls a job late after 5


class TaggedJobs(Protocol):
    """The Spark jobs of one subtask; `spark.jobs.Jobs` has this shape."""

    def adopt_thread(self) -> None:
        """Tags the jobs that the calling thread starts."""
        ...

    def interrupt(self) -> None:
        """Stops running jobs. From any thread."""
        ...

    def log_stacks(self, thread: int, took_s: float) -> None:
        """Logs the stack of a call that has taken this long. From any thread."""
        ...


class RunningCall:
    """At most one call runs at a time, on the subtask's thread; `cancel` and `took_s` are for any thread."""

    def __init__(self, jobs: TaggedJobs, now_s: Callable[[], float] = time.monotonic) -> None:
        """now_s: monotonic time."""
        self._jobs, self._now_s = jobs, now_s
        self._canceled = threading.Event()
        self._thread = 0  # the one that is running a call
        self._since = self._canceled_at = 0.0
        self._recent_s: deque[float] = deque(maxlen=_RECENT)  # of the last calls that may have run a job
        self._is_closing = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """For code that may run Spark jobs: they are tagged, and `cancel` makes the block raise Canceled."""
        self.require_live()
        self._jobs.adopt_thread()
        self._since, self._thread = self._now_s(), threading.get_ident()
        try:
            yield
            if (took_s := self._now_s() - self._since) >= _NO_JOB_S:
                self._recent_s.append(took_s)
        except ProgramError as error:
            if self._canceled.is_set() and not isinstance(error, Canceled):
                raise Canceled("the subtask was cancelled") from error
            raise
        finally:
            self._thread = 0
        self.require_live()

    def close(self, steps: Iterable[Callable[[], None]]) -> None:
        """Calls each, whether cancelled or not, also after one has failed. Raises the first error at the end.

        `cancel` interrupts the author's code in a step that takes too long. Only the first call has an effect.
        """
        if self._is_closing:
            return
        self._is_closing = True
        first: BaseException | None = None
        for step in steps:
            self._since, self._thread = self._now_s(), threading.get_ident()
            try:
                step()
            except BaseException as error:  # the author's code may call sys.exit()
                if first is not None:
                    LOG.error("closing, too: %s: %s", type(error).__name__, error)
                first = first or error
            finally:
                self._thread = 0
        if first is not None:
            raise first

    def cancel(self) -> None:
        """Has to be called again until the call is over.

        One that will be over sooner than Spark ends its job is left alone: that, and the JVM's exceptions, would take
        processor time from the next attempt.
        """
        now_s = self._now_s()
        if not self._canceled.is_set():
            self._canceled_at = now_s
            if (thread := self._thread) and (took_s := now_s - self._since) >= _STUCK_S:
                self._jobs.log_stacks(thread, took_s)
        self._canceled.set()
        if self._thread and not self._is_closing and not self._is_soon_over(now_s):
            self._jobs.interrupt()
        patience_s = _CLOSING_S if self._is_closing else _PLANNING_S
        if (thread := self._thread) and now_s - max(self._canceled_at, self._since) >= patience_s:
            user_code.end(thread)

    def _is_soon_over(self, now_s: float) -> bool:
        """Whether the last calls took less than Spark needs to end a job."""
        return max(self._recent_s, default=math.inf) < _SHORT_S and now_s - self._since < 2 * _SHORT_S

    def took_s(self) -> float | None:
        """The time spent in the running call so far; None between two calls."""
        return self._now_s() - self._since if self._thread else None

    def require_live(self) -> None:
        """Raises Canceled once `cancel` was called; called between stages, so that no further one starts."""
        if self._canceled.is_set():
            raise Canceled("the subtask was cancelled")
