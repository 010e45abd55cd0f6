"""StateQueries: reads state from completed checkpoints for the leader, on two threads of its own.

    query --> is all of it open? --yes--> answers
                   no --> openings: opens it, answers

One thread for what is open, in memory or on this machine, and one for what has to be opened first. Queries take little
of what the subtasks need, and wait for each other instead; but none that is ready waits for the storage.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from lockgate_common.clock import monotonic_ms
from lockgate_common.masking import bare
from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.messages import QueryOutcome, StateAnswer, StateQuery

from lockgate_taskmanager.runtime.background import BackgroundThreads
from lockgate_taskmanager.state.query.opened import OpenedFiles
from lockgate_taskmanager.state.query.snapshot_reader import SnapshotReader
from lockgate_taskmanager.state.scratch import ScratchFolder

log = logging.getLogger(__name__)

_trouble = RecurringLog()  # clients repeat their queries
_PREFIX = "query-"
WAIT_MS = 30_000
"""For its turn: the leader has given up a query by then."""
MOST_WAITING = 32
IDLE_S = 10.0


class StateQueries:
    """Made before the first query; files are opened when they are needed, or when the leader says so."""

    def __init__(self, work_dir: str, report: Callable[[StateAnswer], None]) -> None:
        """work_dir: where copies of databases go; report: sends an answer, from any thread. Raises OSError."""
        self._report = report
        self._reader = SnapshotReader(OpenedFiles(ScratchFolder(Path(work_dir), _PREFIX)))
        self._answers = BackgroundThreads(1, "queries", idle_s=IDLE_S)
        self._openings = BackgroundThreads(1, "query-files")
        self._lock = threading.Lock()
        self._waiting = 0
        self._stopped = False

    def ask(self, query: StateQuery) -> None:
        """Answers a query later, or refuses it when too many wait. Returns at once."""
        with self._lock:
            is_taken = self._waiting < MOST_WAITING
            self._waiting += is_taken
        if is_taken:
            self._answers.submit(self._direct, query, monotonic_ms())
            return
        problem = f"{MOST_WAITING} queries of state wait at the task manager that reads them; try again in a moment"
        self._report(StateAnswer(query.request, QueryOutcome.TRY_AGAIN, (), problem))

    def stop(self) -> None:
        """Takes no more queries, drops those that wait, and releases what was opened. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._openings.submit(self._reader.close)
        self._openings.shutdown(wait=False)
        self._answers.shutdown(wait=False)

    def _direct(self, query: StateQuery, arrived_ms: int) -> None:
        """Answers what is ready, and leaves the rest to the other thread."""
        try:
            is_ready = not query.open_only and self._reader.is_ready(query)
        except Exception as error:
            self._leave_queue()
            self._report(_unreadable(query, error))
            return
        if is_ready:
            self._answer(query, arrived_ms)
        elif not self._stopped:
            with contextlib.suppress(RuntimeError):  # stopped in this moment
                self._openings.submit(self._answer, query, arrived_ms)

    def _answer(self, query: StateQuery, arrived_ms: int) -> None:
        self._leave_queue()
        if self._stopped or monotonic_ms() - arrived_ms >= WAIT_MS:
            return
        try:
            answer = self._reader.prepare(query) if query.open_only else self._reader.answer(query)
        except Exception as error:
            answer = _unreadable(query, error)
        self._report(answer)

    def _leave_queue(self) -> None:
        with self._lock:
            self._waiting -= 1


def _unreadable(query: StateQuery, error: Exception) -> StateAnswer:
    run = bare(query.pointer).rsplit("/", 2)[0]  # of the job: another one's state has troubles of its own
    topic = f"{run}: {type(error).__name__}"
    _trouble.error(log, topic, "a query of state in %s could not be answered", query.pointer, exc_info=error)
    problem = f"the state cannot be read: {type(error).__name__}"
    return StateAnswer(query.request, QueryOutcome.UNREADABLE_STATE, (), problem)
