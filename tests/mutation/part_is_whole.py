"""A lost task manager restarts all of its job, also where no record crosses between slots."""

from __future__ import annotations

from lockgate_coordinator.job import job_master

job_master.extent = lambda *_: (frozenset(), "everything always restarts")
