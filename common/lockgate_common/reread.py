"""What a file holds, read again when the file has changed: whom it lets in needs no restart to change."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from lockgate_common.clock import monotonic_ms
from lockgate_common.recurring_log import RecurringLog

T = TypeVar("T")

log = logging.getLogger(__name__)

AGAIN_MS = 1_000
"""What cannot be used is read again after this, changed or not: the process may have had no file descriptor left."""


class RereadFile(Generic[T]):
    """One file. Not thread-safe.

    read: what it holds; raises ValueError with a sentence when it cannot be used, and then it holds `nothing`, because
    something may just have been removed from it; `nothing` also before there is a file. what: before the sentence, in
    the log.
    """

    def __init__(self, path: Path, read: Callable[[Path], T], nothing: T, what: str) -> None:
        self._path, self._read, self._nothing, self._what = path, read, nothing, what
        self._file = Versions()
        self._content = nothing
        self._trouble = RecurringLog()

    def content(self) -> T:
        """What the file holds now."""
        version = version_of(self._path)
        if self._file.is_due(version):
            try:
                self._content = self._read(self._path)
            except ValueError as error:
                self._content = self._nothing
                self._file.failed(version)
                self._trouble.error(log, str(error), "%s: %s", self._what, error)
            else:
                self._file.used(version)
                log.info("%s was read", self._path)
        return self._content


class Versions:
    """Pure but for the clock. Which version of something was read, and whether to read it now."""

    def __init__(self) -> None:
        self._known: object = None  # as of a file that is missing
        self._again_ms: int | None = None

    def is_due(self, version: object) -> bool:
        """Whether it has changed, or could not be used a while ago."""
        return version != self._known or (self._again_ms is not None and monotonic_ms() >= self._again_ms)

    def used(self, version: object) -> None:
        """It was read."""
        self._known, self._again_ms = version, None

    def failed(self, version: object) -> None:
        """It could not be used, which need not be its own fault."""
        self._known, self._again_ms = version, monotonic_ms() + AGAIN_MS


def version_of(path: Path | str) -> object:
    """Another one when the file has changed."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid
