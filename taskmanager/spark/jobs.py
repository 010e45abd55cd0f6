"""What the Spark jobs of one subtask have in common: a tag to cancel them by, and a description for Spark's UI.

Both belong to the thread that starts the jobs; in a Connect server the description belongs to the session, which is the
subtask's own. It is set when a thread comes to work for a subtask and again when the text changes, never for a single
batch: that would be one more round trip each time.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from lockgate_proto.messages import AttemptId, SubtaskId

from taskmanager.spark.session import is_connect

LOG = logging.getLogger(__name__)
# A Connect server runs a query with its session's settings as local properties of its Spark jobs, this one among them.
_DESCRIPTION = "spark.job.description"


class _Thread(threading.local):
    """Whose jobs the thread starts; several programs take turns on the thread of a rehearsal."""

    worker: Jobs | None = None


_thread = _Thread()


def description(subtask: SubtaskId, checkpoint_id: int, is_rehearsal: bool = False) -> str:
    """How Spark's UI calls a subtask's jobs. checkpoint_id: the last one before them; 0 when there is none."""
    attempt = subtask.attempt or AttemptId()
    who = f"{attempt.job_key} {subtask.vertex_id}[{subtask.subtask}]"
    if is_rehearsal:
        return f"rehearsal of {who}"
    since = f"after checkpoint {checkpoint_id}" if checkpoint_id else "before the first checkpoint"
    return f"{who} attempt {attempt.attempt}, {since}"


class Jobs:
    """Tags, names and interrupts the Spark jobs of one subtask, whatever kind of session it has."""

    def __init__(self, session: Any, tag: str, text: str) -> None:
        """text: see `description`."""
        self._session = session
        self._tag = tag
        self._text = text
        self._context = None if is_connect(session) else session.sparkContext
        self._tagged = 0  # the thread
        self._shown = ""  # the description in force on it

    def describe(self, text: str) -> None:
        """Names what is started from now on; takes effect at the next `adopt_thread`."""
        self._text = text

    def adopt_thread(self) -> None:
        """Tags and names what the calling thread starts from now on. Costs nothing when nothing has changed."""
        here = threading.get_ident()
        if self._tagged != here:
            self._tagged = here
            self._shown = ""
            if self._context is not None:
                self._context.addJobTag(self._tag)
                self._context.setInterruptOnCancel(True)
            else:
                self._session.addTag(self._tag)
        if _thread.worker is not self or self._shown != self._text:
            _thread.worker = self
            self._show(self._text)

    def leave_thread(self) -> None:
        """Ends tagging and naming, when called from the tagged thread."""
        if self._tagged == threading.get_ident():
            if self._context is not None:
                self._context.removeJobTag(self._tag)
            else:
                self._session.removeTag(self._tag)
            if _thread.worker is self:
                _thread.worker = None
                self._show("")
        self._tagged = 0

    def interrupt(self) -> None:
        """From any thread: stops running jobs."""
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)
        else:
            self._session.interruptTag(self._tag)

    def _show(self, text: str) -> None:
        if self._context is not None:
            self._context.setJobDescription(text or None)
        elif text:  # nobody else works in this session, so what it says last may stay
            try:
                self._session.conf.set(_DESCRIPTION, text)
            except Exception as error:  # gRPC's own as well; whatever comes next fails, too, and says why
                LOG.debug("jobs could not be named: %s", error)
        self._shown = text
