"""A lock on a folder that is released when the processes that hold it have ended, however they end."""

from __future__ import annotations

import contextlib
import fcntl
import time
from pathlib import Path
from typing import IO

NAME = "lock"
_LOOK_EVERY_S = 0.05


class FolderInUse(Exception):
    """Another process holds the lock."""


def take(folder: Path, patience_s: float = 0.0, name: str = NAME) -> IO[bytes]:
    """Locks an existing folder until the returned file is closed, here and in every process that has inherited it.

    patience_s: how long to wait for the current holder to end. name: of the lock; locks of different names do not
    exclude each other. Raises FolderInUse, and OSError when the file cannot be
    created. On a file system without locks every process gets in.
    """
    deadline = time.monotonic() + patience_s
    (folder / name).touch(0o600)
    file = (folder / name).open("ab")
    while True:
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
        except OSError:
            return file
        if time.monotonic() >= deadline:
            file.close()
            raise FolderInUse(str(folder))
        time.sleep(_LOOK_EVERY_S)
