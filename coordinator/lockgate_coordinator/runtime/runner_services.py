"""The interface of a term for its JobRunners."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.messages import JobStatus, StandbyStatus

from lockgate_coordinator.graph.slots import ReleaseSlots, RequestSlots
from lockgate_coordinator.job.effects import ControlBody
from lockgate_coordinator.job.trace import Build
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.job_story import JobStory
from lockgate_coordinator.runtime.metadata_files import Run
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.workers import WorkerGroup


class RunnerContext(Protocol):
    """The term, as its runners see it."""

    @property
    def token(self) -> int:
        """The token of the grant."""
        ...

    def slots(self, event: RequestSlots | ReleaseSlots) -> None:
        """Passes an event to the SlotPool, which answers later."""
        ...

    def available_slots(self, job_key: str) -> int:
        """Slots that the job holds, and free ones."""
        ...

    def runs(self, job_key: str) -> None:
        """Every subtask of the job runs: ends its recovery, and lets task managers with free slots prepare for it."""
        ...

    def checkpoint_completed(self, job_key: str) -> None:
        """The job has another completed checkpoint, which queries may read and of which copies may be kept."""
        ...

    def standby_copies(self, job_key: str) -> StandbyStatus | None:
        """Which copies of its newest snapshot there are; None for a job without copies."""
        ...

    def ended_job(self, job_key: str) -> None:
        """The job has a durable result; its clean-up may begin."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class RunnerServices:
    """Shared by all runners of a term."""

    actor: Actor
    workers: WorkerGroup  # for calls that a job waits for
    deletions: WorkerGroup  # for deletions of files, which no job waits for
    persistence: Persistence
    removals: Removals
    context: RunnerContext
    send: Callable[[str, ControlBody], bool]  # to a task manager; False when it is not registered
    leader_address: str
    directory: Callable[[Run], str]  # the run's folder
    new_story: Callable[[], JobStory]
    trouble: RecurringLog = dataclasses.field(default_factory=RecurringLog)
    traces: Callable[[Build], None] | None = None  # where they are sent

    def of_leader(self, status: JobStatus) -> JobStatus:
        """The status with what only the leader's process knows."""
        copies = self.context.standby_copies(status.job_key)
        return dataclasses.replace(status, leader_address=self.leader_address, standby_copies=copies)
