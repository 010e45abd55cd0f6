"""Folders that other users of the machine cannot enter, whatever the umask says: data, logs, storage, work."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make(folder: Path) -> None:
    """Makes a folder and those above it that are missing; closes it when it is there. Raises OSError."""
    make_missing(folder)
    _close(folder)


def make_missing(folder: Path) -> None:
    """As `make`, durable and with mode 0700, but leaves a folder that is there as it is. Raises OSError."""
    folder = folder.absolute()
    missing = [folder, *folder.parents]
    del missing[next(number for number, path in enumerate(missing) if path.is_dir()) :]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        _sync(path.parent)


def _close(folder: Path) -> None:
    """Not if it belongs to another user who has granted access, nor if users share it (/tmp)."""
    found = folder.stat()
    if found.st_uid == os.geteuid() and found.st_mode & 0o077 and not found.st_mode & stat.S_ISVTX:
        folder.chmod(stat.S_IMODE(found.st_mode) & ~0o077)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
