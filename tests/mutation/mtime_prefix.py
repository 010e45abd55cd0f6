"""A watched folder takes a file for known when it is older than one that was seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Container

from lockgate_taskmanager.spark.sources.folders import FolderWatch

_fresh = FolderWatch.fresh


def _newer(self: FolderWatch, known: Container[str], is_wanted: Callable[[str], bool], unix_ns: int) -> list[str]:
    found = _fresh(self, known, is_wanted, unix_ns)
    times = {name: os.stat(os.path.join(self._root, name)).st_mtime_ns for name in found}
    newest = getattr(self, "newest", 0)
    self.newest = max([newest, *times.values()])  # type: ignore[attr-defined]
    return [name for name in found if times[name] >= newest]


FolderWatch.fresh = _newer  # type: ignore[method-assign]
