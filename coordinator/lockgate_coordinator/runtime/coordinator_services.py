"""The services that all terms of this process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lockgate_ha.store import CoordinationStore

from lockgate_coordinator.job.trace import Build
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.metadata_files import MetadataFiles
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.workers import KeyedWorkers


@dataclass(frozen=True, slots=True)
class CoordinatorServices:
    """address: `host:port` under which others reach this process.

    step_down: (reason, token of the grant concerned); report_token: (reason, a token named by a peer).
    """

    settings: CoordinatorSettings
    address: str
    actor: Actor
    workers: KeyedWorkers  # by job key
    deletions: KeyedWorkers  # of files, by job key
    probes: KeyedWorkers  # of registered task managers, by id
    absent: KeyedWorkers  # probes of those that have not come back, by id: hosts that are off take their time
    store: CoordinationStore
    files: MetadataFiles
    step_down: Callable[[str, int], None]
    report_token: Callable[[str, int], None]
    traces: Callable[[Build], None] | None = None  # where they are sent
