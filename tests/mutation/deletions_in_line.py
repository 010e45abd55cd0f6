"""Files are deleted on the worker that a job's urgent writes wait for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from lockgate_coordinator.runtime.deletions import Deletions
from lockgate_coordinator.runtime.metadata_files import Run
from lockgate_coordinator.runtime.runner_services import RunnerServices

_init = Deletions.__init__


def _one_worker(self: Deletions, key: str, run: Callable[[], Run], services: RunnerServices) -> None:
    _init(self, key, run, dataclasses.replace(services, deletions=services.workers))


Deletions.__init__ = _one_worker  # type: ignore[method-assign]
