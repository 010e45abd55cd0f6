"""The folder of slot files: in shared memory where there is room, and never left behind for long.

A killed process cannot clean up, so each folder holds a locked file; whoever starts next removes the folders whose
lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 256 << 20
_PREFIX = "lockgate-slots-"


class SlotFolder:
    """Hands out paths for slot files."""

    def __init__(self, work_dir: str, shared_memory: Path = _SHARED_MEMORY) -> None:
        """work_dir: used when `shared_memory` is missing or has less than 256 MB free. Raises OSError."""
        parent = shared_memory if _has_room(shared_memory) else Path(work_dir)
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock = _locked(self.path / "lock")
        self._numbers = itertools.count()

    def new_path(self) -> str:
        """A path that nobody has used before."""
        return str(self.path / f"{next(self._numbers)}.slot")

    def close(self) -> None:
        """Removes the folder."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _has_room(folder: Path) -> bool:
    try:
        free = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and free.f_bavail * free.f_frsize >= _NEEDED_BYTES


def _locked(path: Path) -> int | None:
    """Opens and locks a file; None when another process holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if not (folder / "lock").exists():
                continue  # being made right now, or not ours
            lock = _locked(folder / "lock")
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
