"""Scratch folders of one process, which outlive it only for a while.

A killed process cannot clean up, so each folder holds a locked file; the next process to start removes the folders
whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path


class ScratchFolder:
    """One folder of this process, made when it is first needed. Thread-safe."""

    def __init__(self, parent: Path, prefix: str) -> None:
        """Removes what killed processes have left there under the same prefix. Raises OSError."""
        self._parent = parent
        self._prefix = prefix
        self._path: Path | None = None
        self._descriptor: int | None = None
        self._numbers = itertools.count()
        self._guard = threading.Lock()
        if parent.is_dir():
            _remove_abandoned(parent, prefix)

    @property
    def path(self) -> Path:
        """The folder. Raises OSError."""
        with self._guard:
            if self._path is None:
                self._parent.mkdir(parents=True, exist_ok=True)
                path = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self._parent))
                self._descriptor = _locked(path / "lock")
                self._path = path
            return self._path

    def new_path(self, suffix: str = "") -> Path:
        """A path in it that was never used before. Raises OSError."""
        return self.path / f"{next(self._numbers)}{suffix}"

    def close(self) -> None:
        """Removes the folder. Idempotent."""
        with self._guard:
            path, self._path = self._path, None
            descriptor, self._descriptor = self._descriptor, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Opens and locks a file; None when another process holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid() or not (folder / "lock").exists():
                continue  # another user's, being made right now, or not ours
            lock = _locked(folder / "lock")
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
