"""SnapshotUploads: stores one subtask's frozen state in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import replace

from lockgate_common.recurring_log import RecurringLog

from lockgate_taskmanager.runtime import faults
from lockgate_taskmanager.runtime.failures import text_of
from lockgate_taskmanager.runtime.in_flight import FrozenChannels
from lockgate_taskmanager.state.backend import remove_checkpoint
from lockgate_taskmanager.task.events import UploadDone, UploadFailed
from lockgate_taskmanager.task.program import DataError, ProgramError, Snapshot, UserError

log = logging.getLogger(__name__)

REMEMBERED = 1_000


class SnapshotUploads:
    """Used by the subtask's thread; `done` and `discard` are called from the pool's threads.

    discard: removes the files of a checkpoint that was aborted while its upload was running; on_refused: called when
    `refused` is set.
    """

    def __init__(
        self,
        pool: futures.Executor,
        done: Callable[[UploadDone | UploadFailed], object],
        discard: Callable[[int], None] = lambda _: None,
        on_refused: Callable[[], object] = lambda: None,
    ) -> None:
        self._pool = pool
        self._done = done
        self._discard = discard
        self._on_refused = on_refused
        self._trouble = RecurringLog()  # a storage that fails does so at each checkpoint
        self.refused: UserError | DataError | None = None  # why the attempt has to end
        self._acknowledged: set[int] = set()
        self._frozen: dict[int, Snapshot] = {}
        self._running: dict[int, tuple[futures.Future[None], Snapshot]] = {}

    def keep(self, checkpoint_id: int, snapshot: Snapshot) -> None:
        """Keeps a frozen state until its upload starts."""
        self._frozen[checkpoint_id] = snapshot

    def start(self, checkpoint_id: int, channels: FrozenChannels | None = None) -> None:
        """Stores it in the background, with the in-flight elements. Raises KeyError when it was not kept."""
        self._running = {number: running for number, running in self._running.items() if not running[0].done()}
        snapshot = self._frozen.pop(checkpoint_id)
        self._running[checkpoint_id] = (self._pool.submit(self._persist, checkpoint_id, snapshot, channels), snapshot)

    def drop(self, checkpoint_id: int) -> None:
        """Not needed any more: an upload that has not begun is dropped."""
        snapshot = self._frozen.pop(checkpoint_id, None)
        if snapshot is not None:
            snapshot.release()
        if checkpoint_id not in self._running:
            return
        self._cancel_upload(checkpoint_id, *self._running[checkpoint_id])

    def acknowledged(self, checkpoint_id: int) -> None:
        """Its durability is being reported to the leader: from now on only the leader may delete it."""
        self._acknowledged = {
            *(number for number in self._acknowledged if number > checkpoint_id - REMEMBERED),
            checkpoint_id,
        }

    def close(self, timeout_s: float) -> bool:
        """Drops uploads that have not begun and waits for the rest. False when one is still running."""
        for snapshot in self._frozen.values():
            snapshot.release()
        self._frozen.clear()
        for checkpoint_id, running in self._running.items():
            self._cancel_upload(checkpoint_id, *running)
        return not futures.wait([upload for upload, _ in self._running.values()], timeout_s).not_done

    def _cancel_upload(self, checkpoint_id: int, upload: futures.Future[None], snapshot: Snapshot) -> None:
        """Its storage will not be reported, unless it already was."""
        if upload.cancel():  # a running upload releases its resources itself
            snapshot.release()
        elif checkpoint_id not in self._acknowledged:
            # The leader deleted the files when it aborted the checkpoint or removed the job; this upload may have
            # written more since.
            upload.add_done_callback(lambda _: self._remove_later(checkpoint_id))

    def _remove_later(self, checkpoint_id: int) -> None:
        """Not on the subtask's thread: the storage may hang."""
        try:
            self._pool.submit(self._remove, checkpoint_id)
        except RuntimeError:  # the pool has ended, so this is the thread of an upload that outlived it
            self._remove(checkpoint_id)

    def _remove(self, checkpoint_id: int) -> None:
        if checkpoint_id not in self._acknowledged:  # possibly acknowledged just when it was dropped
            self._discard(checkpoint_id)

    def _persist(self, checkpoint_id: int, snapshot: Snapshot, channels: FrozenChannels | None) -> None:
        started = time.monotonic()
        try:
            faults.point("before-upload")
            state = snapshot.persist()
            if channels is not None:
                state = replace(state, channels=channels.persist())
            faults.point("after-upload")
        except (UserError, DataError) as error:  # lasting: each later checkpoint would be declined, too
            self.refused = error
            self._on_refused()
        except (ProgramError, OSError) as error:
            reason = f"the snapshot could not be stored: {error}"
            self._done(UploadFailed(checkpoint_id, reason, is_storage=isinstance(error, OSError)))
        except Exception as error:
            text = "checkpoint %d: storing the state failed unexpectedly"
            self._trouble.error(log, "upload", text, checkpoint_id, exc_info=True)
            self._done(UploadFailed(checkpoint_id, text_of(error)))
        else:
            self._done(UploadDone(checkpoint_id, state, round((time.monotonic() - started) * 1000)))


def discarder(directory: str) -> Callable[[int], None]:
    """Removes the files that an aborted checkpoint left in a job's folder; ids are never reused."""

    def discard(checkpoint_id: int) -> None:
        try:
            remove_checkpoint(directory, checkpoint_id)
        except (OSError, ValueError) as error:
            log.info(
                "%s: checkpoint %d was aborted, but its files could not be removed: %s", directory, checkpoint_id, error
            )

    return discard
