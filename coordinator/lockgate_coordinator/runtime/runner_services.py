"""What a JobRunner needs of the term that it belongs to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from lockgate_coordinator.graph.slots import SlotsReleased, SlotsRequested
from lockgate_coordinator.job.effects import ControlBody
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.job_story import JobStory
from lockgate_coordinator.runtime.metadata_files import Run
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.workers import WorkerGroup


class RunnerContext(Protocol):
    """What a runner needs of the term it belongs to."""

    @property
    def token(self) -> int:
        """Of the grant."""
        ...

    def slots(self, event: SlotsRequested | SlotsReleased) -> None:
        """To the SlotPool; its answer comes later."""
        ...

    def available_slots(self, job_key: str) -> int:
        """Slots that the job holds, and those that nobody holds."""
        ...

    def runs(self, job_key: str) -> None:
        """Every subtask of the job runs: its recovery is through; task managers with free slots may prepare for it."""
        ...

    def ended_job(self, job_key: str) -> None:
        """The job has a durable result; its clean-up may begin."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class RunnerServices:
    """Shared by all runners of a term."""

    actor: Actor
    workers: WorkerGroup  # what a job waits for
    deletions: WorkerGroup  # of files, which no job waits for
    persistence: Persistence
    removals: Removals
    context: RunnerContext
    send: Callable[[str, ControlBody], bool]  # to a task manager; False when it is not registered
    leader_address: str
    directory: Callable[[Run], str]  # the run's folder
    new_story: Callable[[], JobStory]
