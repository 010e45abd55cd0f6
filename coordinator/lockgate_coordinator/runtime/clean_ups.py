"""Cleans up ended jobs, with retries until no records or files are left. Actor thread only."""

from __future__ import annotations

import logging
from functools import partial

from lockgate_common.clock import monotonic_ms
from lockgate_ha.errors import CorruptRecord

from lockgate_coordinator.job.backoff import Backoff
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_coordinator.runtime.workers import WorkerGroup

log = logging.getLogger(__name__)


class CleanUps:
    """The clean-ups of one term. The next leader continues them: the stored result stays dirty until then."""

    def __init__(self, fence: TermFence, actor: Actor, workers: WorkerGroup, removals: Removals) -> None:
        """workers: the workers that delete files, so that a clean-up runs after the pending deletions of its job."""
        self._fence = fence
        self._actor = actor
        self._workers = workers
        self._removals = removals
        self._pauses: dict[str, Backoff] = {}

    def begin(self, key: str, run_id: str) -> None:
        """The job has a durable result."""
        work = self._workers.submit(key, partial(self._removals.clean_up, key, run_id))
        work.add_done_callback(lambda done: self._actor.tell(partial(self._tried, key, run_id, done.exception())))

    def _tried(self, key: str, run_id: str, error: BaseException | None) -> None:
        if error is None or self._fence.over.is_set() or isinstance(error, Stopped):
            self._pauses.pop(key, None)
            return
        if isinstance(error, CorruptRecord):  # retries do not help
            log.error("job %s has ended but is not cleaned up; the next leader will try again: %s", key, error)
            return
        now_ms = monotonic_ms()
        pause_ms = self._pauses.setdefault(key, Backoff()).failed(now_ms)
        text = "job %s has ended but is not cleaned up, next try after %s ms: %s: %s"
        self._fence.trouble.warning(log, f"clean-up of {key}", text, key, pause_ms, type(error).__name__, error)
        self._actor.at(now_ms + pause_ms, partial(self._again, key, run_id))

    def _again(self, key: str, run_id: str) -> None:
        if not self._fence.over.is_set():
            self.begin(key, run_id)
