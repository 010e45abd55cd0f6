"""Where a drill takes place: which processes there are, and how one of them is killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lockgate_proto.messages import ClusterStatus, JobStatus, LeaderRecord, TaskManagerStatus

from lockgate.client import Client, ClientError
from lockgate.drill.model import Target
from lockgate.errors import UserError

LOOK_EVERY_S = 0.1


class DrillError(UserError):
    """The drill cannot start or go on. `str()` says what to do."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that is about to be killed.

    text: how it is called on the screen; container: the id of the one that it runs in, if any; address: where it says
    that it listens, if that is known.
    """

    pid: int
    text: str
    container: str = ""
    address: str = ""


class Arena(Protocol):
    """A cluster and the means to hurt it."""

    @property
    def client(self) -> Client:
        """Follows the leader."""
        ...

    def survey(self, target: Target) -> ClusterStatus:
        """Notes how many processes a whole cluster has. Raises DrillError when the target cannot be killed here."""
        ...

    def wait_whole(self, timeout_s: float) -> bool:
        """Waits until as many coordinators and task managers live as at the survey; False when time is up."""
        ...

    def victim(self, target: Target, job: JobStatus, choice: random.Random) -> Victim:
        """Picks the process to kill. Raises DrillError when there is none."""
        ...

    def kill(self, victim: Victim) -> int:
        """Kills it without a warning. Returns the wall clock in microseconds right before that."""
        ...

    def make_folder(self, key: str) -> Path:
        """A fresh folder for a job's output, as the cluster's processes see it."""
        ...

    def fetch(self, folder: Path) -> Path:
        """The same folder as it is now, as this process sees it."""
        ...


def wait_for_cluster(client: Client, condition: Callable[[ClusterStatus], bool], timeout_s: float) -> bool:
    """Waits until what the cluster says of itself fits; no answer counts as "not yet". False when time is up."""
    never, deadline = threading.Event(), time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if condition(client.cluster()):
                return True
        except ClientError:
            pass
        never.wait(LOOK_EVERY_S)
    return False


def leader_of(status: ClusterStatus) -> LeaderRecord:
    """Who leads. Raises DrillError."""
    if status.leader is None:
        raise DrillError("nobody leads the cluster; look into the coordinators' logs")
    return status.leader


def busy_task_manager(status: ClusterStatus, job: JobStatus, choice: random.Random) -> TaskManagerStatus:
    """One that runs a subtask of the job. Raises DrillError."""
    busy = {one.task_manager_id for one in job.subtasks}
    managers = sorted((one for one in status.task_managers if one.task_manager_id in busy), key=_by_id)
    if not managers:
        raise DrillError("no task manager runs a subtask of the job")
    return choice.choice(managers)


def _by_id(one: TaskManagerStatus) -> str:
    return one.task_manager_id
