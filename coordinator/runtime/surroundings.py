"""What a JobRunner needs of the term that it belongs to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from coordinator.graph.slots import SlotsReleased, SlotsRequested
from coordinator.recovery.effects import ControlBody
from coordinator.runtime.actor import Actor
from coordinator.runtime.metadata_files import Run
from coordinator.runtime.persistence import Persistence
from coordinator.runtime.workers import WorkerGroup

if TYPE_CHECKING:
    from coordinator.runtime.job_runner import JobRunner


class Surroundings(Protocol):
    """What a runner needs of the term it belongs to."""

    @property
    def token(self) -> int:
        """Of the grant."""
        ...

    def send(self, task_manager_id: str, body: ControlBody) -> bool:
        """False when the task manager is not registered."""
        ...

    def is_registered(self, task_manager_id: str) -> bool:
        """Whether it is there, or may come back."""
        ...

    def slots(self, event: SlotsRequested | SlotsReleased) -> None:
        """To the SlotPool; its answer comes later."""
        ...

    def available_slots(self, job_key: str) -> int:
        """Slots that the job holds, and those that nobody holds."""
        ...

    def runs(self, runner: JobRunner) -> None:
        """Every subtask of the job runs: its recovery is through; task managers with free slots may prepare for it."""
        ...

    def ended_job(self, runner: JobRunner) -> None:
        """The job has a durable result; its clean-up may begin."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """Shared by all runners of a term."""

    actor: Actor
    workers: WorkerGroup  # what a job waits for
    deletions: WorkerGroup  # of files, which no job waits for
    persistence: Persistence
    surroundings: Surroundings
    leader_address: str
    directory: Callable[[Run], str]  # the run's folder
