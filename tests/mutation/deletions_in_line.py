"""Files are deleted on the worker that a job's urgent writes wait for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from coordinator.runtime.deletions import Deletions
from coordinator.runtime.metadata_files import Run
from coordinator.runtime.surroundings import Tools

_init = Deletions.__init__


def _one_worker(self: Deletions, key: str, run: Callable[[], Run], tools: Tools) -> None:
    _init(self, key, run, dataclasses.replace(tools, deletions=tools.workers))


Deletions.__init__ = _one_worker  # type: ignore[method-assign]
