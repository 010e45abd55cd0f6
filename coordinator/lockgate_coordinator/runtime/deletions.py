"""Deletes what a running job no longer needs: the record first, then the files. Actor thread only.

Records are deleted on the job's ordered worker, like its other writes to ZooKeeper. Files are deleted on a separate
worker, so that a storage that hangs on a delete delays no attempt, checkpoint or result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from lockgate_common.clock import monotonic_ms
from lockgate_proto.messages import CompletedCheckpoint

from lockgate_coordinator.job.backoff import Backoff
from lockgate_coordinator.job.effects import DiscardCheckpoint
from lockgate_coordinator.runtime.actor import Timer
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.metadata_files import Run
from lockgate_coordinator.runtime.runner_services import RunnerServices

log = logging.getLogger(__name__)

ORPHANS_EVERY = 50  # completed checkpoints between two searches for orphans
MOST_WAITING = 1_000  # pending deletions of files on a slow storage; the next search for orphans finds the others


class Deletions:
    """The deletions of one job under one leader."""

    def __init__(self, key: str, run: Callable[[], Run], services: RunnerServices) -> None:
        """run: returns the run to which the files belong."""
        self._key = key
        self._run = run
        self._services = services
        self._undiscarded: dict[int, DiscardCheckpoint] = {}  # records not deleted yet, which may refer to any file
        self._backoff = Backoff()
        self._retry: Timer | None = None
        self._waiting = 0
        self._is_behind = False  # some deletions were left to the next search for orphans
        self._completed = 0  # checkpoints under this leader
        self._newest = 0
        self._closed = False

    def close(self) -> None:
        """The job or the term has ended: the clean-up deletes the rest."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is durable. Starts a search for orphans from time to time.

        The first one finds what a failed leader left, later ones find late uploads of aborted checkpoints.
        """
        self._newest = checkpoint_id
        if self._completed % ORPHANS_EVERY == 0:
            self._look_for_orphans()
        self._completed += 1

    def discard(self, effect: DiscardCheckpoint) -> None:
        """Carries out DiscardCheckpoint; retries until the record is deleted."""
        forget = partial(self._services.removals.forget_checkpoint, self._key, effect.checkpoint.checkpoint_id)
        work = self._services.workers.submit(self._key, forget)
        work.add_done_callback(
            lambda done: self._services.actor.tell(partial(self._record_deleted, effect, done.exception()))
        )

    def discard_pending(self, number: int) -> None:
        """Carries out DiscardPending."""
        self._delete(partial(self._services.removals.discard_pending, self._run(), number))

    def dispose(self, savepoint: CompletedCheckpoint, forgotten: Callable[[], None]) -> Future[None]:
        """Deletes a savepoint. Fails with StoreError, StorageError or Stopped.

        forgotten: called on a worker's thread when its record is deleted; its files follow.
        """
        answer: Future[None] = Future()
        services = self._services

        def deleted(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        def gone(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                answer.set_exception(error)
                return
            forgotten()
            files = services.deletions.submit(self._key, partial(services.removals.delete_pointed, savepoint.pointer))
            files.add_done_callback(deleted)

        forget = partial(services.removals.forget_checkpoint, self._key, savepoint.checkpoint_id)
        services.workers.submit(self._key, forget).add_done_callback(gone)
        return answer

    def _record_deleted(self, effect: DiscardCheckpoint, error: BaseException | None) -> None:
        """The record of a subsumed checkpoint is certainly deleted, or (error) may still exist."""
        if self._closed or isinstance(error, Stopped):
            return
        number = effect.checkpoint.checkpoint_id
        if error is not None:
            self._undiscarded[number] = effect
            self._try_again(number, error)
            return
        was_held_up = self._undiscarded.pop(number, None) is not None
        free = () if self._undiscarded else effect.free
        self._delete(partial(self._services.removals.delete_files, self._run(), effect.checkpoint, free))
        if was_held_up and not self._undiscarded:
            self._backoff = Backoff()
            self._look_for_orphans()  # for shared files that had to stay until now

    def _try_again(self, number: int, error: BaseException) -> None:
        if self._retry is not None:
            return  # with the others, when the pause is over
        now_ms = monotonic_ms()
        pause_ms = self._backoff.failed(now_ms)
        text = "job %s: the record of the subsumed checkpoint %s is not deleted, next try after %s ms: %s"
        self._services.trouble.warning(log, f"pointers of {self._key}", text, self._key, number, pause_ms, error)
        self._retry = self._services.actor.at(now_ms + pause_ms, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        for effect in self._undiscarded.values():
            self.discard(effect)

    def _look_for_orphans(self) -> None:
        self._delete(partial(self._services.removals.delete_orphans, self._run(), self._newest))

    def _delete(self, call: Callable[[], None]) -> None:
        if self._waiting >= MOST_WAITING:
            if not self._is_behind:
                text = "job %s: %s deletions are waiting for its storage, which does not keep up"
                log.warning(text, self._key, self._waiting)
            self._is_behind = True
            return
        self._waiting += 1
        work = self._services.deletions.submit(self._key, call)
        work.add_done_callback(lambda done: self._services.actor.tell(partial(self._deleted, done.exception())))

    def _deleted(self, error: BaseException | None) -> None:
        self._waiting -= 1
        if self._closed or isinstance(error, Stopped):
            return
        if error is not None:
            log.error("job %s: files that it no longer needs are not deleted", self._key, exc_info=error)
        if self._is_behind and not self._waiting:
            self._is_behind = False
            self._look_for_orphans()
