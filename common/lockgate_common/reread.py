"""What a file holds, read again when the file has changed: whom it lets in needs no restart to change."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class RereadFile(Generic[T]):
    """One file. Not thread-safe.

    read: what it holds; raises ValueError with a sentence when it cannot be used, and then it holds `nothing`, because
    something may just have been removed from it; `nothing` also before there is a file. what: before the sentence, in
    the log.
    """

    def __init__(self, path: Path, read: Callable[[Path], T], nothing: T, what: str) -> None:
        self._path, self._read, self._nothing, self._what = path, read, nothing, what
        self._version: object = None  # as of a file that is missing
        self._content = nothing

    def content(self) -> T:
        """What the file holds now."""
        version = version_of(self._path)
        if version != self._version:
            self._version = version
            try:
                self._content = self._read(self._path)
            except ValueError as error:
                self._content = self._nothing
                log.error("%s: %s", self._what, error)
            else:
                log.info("%s was read", self._path)
        return self._content


def version_of(path: Path | str) -> object:
    """Another one when the file has changed."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid
