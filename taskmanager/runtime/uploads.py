"""SnapshotUploads: stores one subtask's frozen state in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent import futures

from taskmanager.runtime import faults
from taskmanager.runtime.failures import text_of
from taskmanager.task.events import UploadDone, UploadFailed
from taskmanager.task.program import ProgramError, Snapshot

log = logging.getLogger(__name__)


class SnapshotUploads:
    """Used by the subtask's thread; `done` is called from the pool's threads."""

    def __init__(self, pool: futures.Executor, done: Callable[[UploadDone | UploadFailed], None]) -> None:
        self._pool = pool
        self._done = done
        self._frozen: dict[int, Snapshot] = {}
        self._running: dict[int, futures.Future[None]] = {}

    def keep(self, checkpoint_id: int, snapshot: Snapshot) -> None:
        """Holds a frozen state until its upload starts."""
        self._frozen[checkpoint_id] = snapshot

    def start(self, checkpoint_id: int) -> None:
        """Stores it in the background. Raises KeyError when it was not kept."""
        self._running = {number: one for number, one in self._running.items() if not one.done()}
        snapshot = self._frozen.pop(checkpoint_id)
        self._running[checkpoint_id] = self._pool.submit(self._persist, checkpoint_id, snapshot)

    def drop(self, checkpoint_id: int) -> None:
        """Not needed any more: an upload that has not begun never will."""
        self._frozen.pop(checkpoint_id, None)
        upload = self._running.get(checkpoint_id)
        if upload is not None:
            upload.cancel()

    def close(self, timeout_s: float) -> bool:
        """Drops what has not begun and waits for the rest. False when an upload is still going on."""
        self._frozen.clear()
        for upload in self._running.values():
            upload.cancel()
        return not futures.wait(self._running.values(), timeout_s).not_done

    def _persist(self, checkpoint_id: int, snapshot: Snapshot) -> None:
        started = time.monotonic()
        try:
            faults.point("before-upload")
            state = snapshot.persist()
            faults.point("after-upload")
        except (ProgramError, OSError) as error:
            self._done(UploadFailed(checkpoint_id, f"the state could not be stored: {error}"))
        except Exception as error:
            log.exception("checkpoint %d: storing the state failed unexpectedly", checkpoint_id)
            self._done(UploadFailed(checkpoint_id, text_of(error)))
        else:
            self._done(UploadDone(checkpoint_id, state, round((time.monotonic() - started) * 1000)))
