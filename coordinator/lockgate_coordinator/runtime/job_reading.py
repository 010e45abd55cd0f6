"""A new leader reads each job separately, so that an unreadable one delays no other. Actor thread only."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from lockgate_common.clock import monotonic_ms
from lockgate_ha.errors import CorruptRecord
from lockgate_ha.records import FoundJob

from lockgate_coordinator.job.backoff import Backoff
from lockgate_coordinator.runtime.actor import Actor, Timer
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_coordinator.runtime.workers import WorkerGroup

log = logging.getLogger(__name__)

Found = FoundJob | CorruptRecord

FIRST_PAUSE_MS = 200  # ZooKeeper is often back after a moment
PATIENCE_MS = 1_000  # how long clients wait for the first scan of all jobs


class Reader(Protocol):
    """Receives the results. Called on the actor thread."""

    def job_read(self, key: str, found: Found) -> None:
        """The records of a job are read, or found corrupt."""
        ...

    def job_unreadable(self, key: str, reason: str) -> None:
        """A job could not be read; another try follows. reason: part of a sentence, for people."""
        ...

    def jobs_scanned(self) -> None:
        """Called once: every job was read once, or the first scan has taken too long."""
        ...


class JobReading:
    """The reading of one term."""

    def __init__(
        self, fence: TermFence, actor: Actor, workers: WorkerGroup, persistence: Persistence, reader: Reader
    ) -> None:
        self._fence = fence
        self._actor = actor
        self._workers = workers
        self._persistence = persistence
        self._reader = reader
        self._unseen: set[str] = set()
        self._pauses: dict[str, Backoff] = {}  # of jobs that could not be read so far
        self._retries: dict[str, Timer] = {}
        self._is_settled = False

    def begin(self, keys: Sequence[str]) -> None:
        """Reads these jobs, with retries."""
        self._unseen = set(keys)
        for key in keys:
            self._read(key)
        if keys:
            self._actor.at(monotonic_ms() + PATIENCE_MS, self._settle)
        else:
            self._settle()

    def hurry(self) -> None:
        """ZooKeeper is reachable again: retries at once."""
        retries, self._retries = self._retries, {}
        for key, timer in retries.items():
            timer.cancel()
            self._read(key)

    def _read(self, key: str) -> None:
        self._retries.pop(key, None)
        if not self._fence.over.is_set():
            work = self._workers.submit(key, partial(self._persistence.load, key))
            work.add_done_callback(lambda done: self._actor.tell(partial(self._answered, key, done)))

    def _answered(self, key: str, done: Future[Found]) -> None:
        error = done.exception()
        if self._fence.over.is_set() or isinstance(error, Stopped):
            return
        if error is None:
            self._pauses.pop(key, None)
            self._reader.job_read(key, done.result())
        else:
            now_ms = monotonic_ms()
            pause_ms = self._pauses.setdefault(key, Backoff(FIRST_PAUSE_MS)).failed(now_ms)
            reason = f"its records cannot be read, next try after {pause_ms} ms: {error}"
            self._fence.trouble.warning(log, f"records of {key}", "job %s: %s", key, reason)
            self._retries[key] = self._actor.at(now_ms + pause_ms, partial(self._read, key))
            self._reader.job_unreadable(key, reason)
        self._unseen.discard(key)
        if not self._unseen:
            self._settle()

    def _settle(self) -> None:
        if not self._is_settled and not self._fence.over.is_set():
            self._is_settled = True
            self._reader.jobs_scanned()
