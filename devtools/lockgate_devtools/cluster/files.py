"""Files in the cluster's folder."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from lockgate_common import folder_lock, private_folder

from lockgate_devtools.cluster.errors import ClusterError

_NEEDED_BYTES = 256 * 1024 * 1024


def prepare_directory(directory: Path, folders: Sequence[str] = ()) -> None:
    """Creates the directory and folders in it, which are closed to others even if they were there, and checks for free
    space. Raises ClusterError with a sentence.
    """
    try:
        private_folder.make_missing(directory)
        for folder in folders:
            private_folder.make(directory / folder)
        free_bytes = shutil.disk_usage(directory).free
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ClusterError(_full(directory)) from error
        raise ClusterError(f"cannot use the folder {directory}: {error.strerror}; choose another with --dir") from error
    if free_bytes < _NEEDED_BYTES:
        raise ClusterError(_full(directory))


def lock_directory(directory: Path) -> IO[bytes]:
    """Locks the folder against other clusters until the file is closed. Raises ClusterError with a sentence."""
    try:
        return folder_lock.take(directory)
    except folder_lock.FolderInUse as error:
        raise ClusterError(
            f"another cluster runs in {directory}; use that one, stop it, or choose another folder with --dir"
        ) from error
    except OSError as error:
        raise ClusterError(f"cannot use the folder {directory}: {error.strerror}; choose another with --dir") from error


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old content or the new one, never a mix. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.touch(0o600)
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _full(directory: Path) -> str:
    return (
        f"the disk of {directory} is full: a cluster needs at least {_NEEDED_BYTES // 1024 // 1024} MiB; "
        "make room or choose another folder with --dir"
    )
