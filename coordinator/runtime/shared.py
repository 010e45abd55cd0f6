"""What every term of leadership of this process uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.runtime.actor import Actor
from coordinator.runtime.metadata_files import MetadataFiles
from coordinator.runtime.settings import CoordinatorSettings
from coordinator.runtime.workers import KeyedWorkers
from ha.store import CoordinationStore


@dataclass(frozen=True, slots=True)
class Shared:
    """address: `host:port` under which others reach this process.

    step_down: (reason, token of the grant that it is about); report_token: (reason, a token that a peer names).
    """

    settings: CoordinatorSettings
    address: str
    actor: Actor
    workers: KeyedWorkers  # by job key
    deletions: KeyedWorkers  # of files, by job key
    probes: KeyedWorkers  # by task manager id
    store: CoordinationStore
    files: MetadataFiles
    step_down: Callable[[str, int], None]
    report_token: Callable[[str, int], None]
