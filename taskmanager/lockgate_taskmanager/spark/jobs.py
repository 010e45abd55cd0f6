"""Tag and description of the Spark jobs of one subtask: the tag cancels them, the description is shown in Spark's UI.

Both belong to the thread that starts the jobs; on a Connect server the description belongs to the session, which is the
subtask's own. The description is set when a thread starts working for a subtask and again when the text changes, never
for each batch: that would be an extra round trip.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import AttemptId, SubtaskId

from lockgate_taskmanager.spark.repeated_job import clear_properties
from lockgate_taskmanager.spark.session import is_connect
from lockgate_taskmanager.spark.stacks import log_stacks
from lockgate_taskmanager.task.program import EngineTime

LOG = logging.getLogger(__name__)
# A Connect server runs a query with its session's settings as local properties of its Spark jobs, including this one.
_DESCRIPTION = "spark.job.description"


class _Thread(threading.local):
    """The subtask for which the thread starts jobs; several programs take turns on the thread of a warm-up."""

    worker: Jobs | None = None


_thread = _Thread()


def description(subtask: SubtaskId, checkpoint_id: int, is_warmup: bool = False) -> str:
    """The description of a subtask's jobs in Spark's UI.

    checkpoint_id: the last one before them; 0 when there is none.
    """
    attempt = subtask.attempt or AttemptId()
    subtask_name = f"{attempt.job_key} {subtask.vertex_id}[{subtask.subtask}]"
    if is_warmup:
        return f"warm-up of {subtask_name}"
    since = f"after checkpoint {checkpoint_id}" if checkpoint_id else "before the first checkpoint"
    return f"{subtask_name} attempt {attempt.attempt}, {since}"


def to_arrow(frame: Any) -> pa.Table:
    """Executes a DataFrame, and counts the time for the subtask that the thread works for."""
    return counted(frame.toArrow)


def counted(job: Callable[[], pa.Table]) -> pa.Table:
    """Runs a Spark job, and counts the time for the subtask that the thread works for."""
    worker, started = _thread.worker, time.monotonic()
    try:
        return job()
    finally:
        if worker is not None:
            worker.spent.add(time.monotonic() - started)


class Jobs:
    """Tags, describes and interrupts the Spark jobs of one subtask, for any kind of session."""

    def __init__(self, session: Any, tag: str, text: str, spent: EngineTime | None = None) -> None:
        """text: see `description`. spent: counts what the jobs have taken."""
        self.spent = spent or EngineTime()
        self._session = session
        self._tag = tag
        self._text = text
        self._context = None if is_connect(session) else session.sparkContext
        self._tagged = 0  # the thread
        self._described = ""  # the description in effect on it

    def describe(self, text: str) -> None:
        """Sets the description of later jobs; takes effect at the next `adopt_thread`."""
        self._text = text

    def adopt_thread(self) -> None:
        """Tags and describes the jobs that the calling thread starts from now on. Free when nothing has changed."""
        here = threading.get_ident()
        if self._tagged != here:
            self._tagged = here
            self._described = ""
            if self._context is not None:
                self._context.addJobTag(self._tag)
                self._context.setInterruptOnCancel(True)
            else:
                self._session.addTag(self._tag)
        if _thread.worker is not self or self._described != self._text:
            _thread.worker = self
            self._set_description(self._text)

    def leave_thread(self) -> None:
        """Ends tagging and describing, when called from the tagged thread."""
        if self._tagged == threading.get_ident():
            if self._context is not None:
                self._context.removeJobTag(self._tag)
                clear_properties(self._context)
            else:
                self._session.removeTag(self._tag)
            if _thread.worker is self:
                _thread.worker = None
                self._set_description("")
        self._tagged = 0

    def interrupt(self) -> None:
        """From any thread: stops running jobs."""
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)
        else:
            self._session.interruptTag(self._tag)

    def log_stacks(self, thread: int, took_s: float) -> None:
        """Logs the stack of a call of the subtask that has taken this long. From any thread."""
        log_stacks(f"{self._text}: a call is cancelled after {took_s:.0f} s", thread, self._context)

    def _set_description(self, text: str) -> None:
        if self._context is not None:
            self._context.setJobDescription(text or None)
        elif text:  # the session is used by this subtask only, so the last text may stay
            try:
                self._session.conf.set(_DESCRIPTION, text)
            except Exception as error:  # gRPC's own errors, too; the next call fails as well, and reports why
                LOG.debug("jobs could not be named: %s", error)
        self._described = text
