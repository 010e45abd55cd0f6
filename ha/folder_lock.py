"""One owner for a folder: a lock that ends with the processes that hold it, however they end."""

from __future__ import annotations

import contextlib
import fcntl
import time
from pathlib import Path
from typing import IO

NAME = "lock"
_LOOK_EVERY_S = 0.05


class FolderInUse(Exception):
    """Another process has the lock."""


def take(folder: Path, patience_s: float = 0.0) -> IO[bytes]:
    """Locks the folder, which has to be there, until the file that is returned is closed, here and in every process
    that has inherited it. patience_s: how long whoever has it may still take to end.

    Raises FolderInUse, and OSError when the file cannot be made. A file system that knows no locks lets everybody in.
    """
    deadline = time.monotonic() + patience_s
    file = (folder / NAME).open("ab")
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
