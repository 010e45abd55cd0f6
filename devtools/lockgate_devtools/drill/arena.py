"""The cluster of a drill: its processes, and how one of them is killed."""

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
from lockgate.errors import UserError
from lockgate_devtools.drill.model import Target

LOOK_EVERY_S = 0.1


class DrillError(UserError):
    """The drill cannot start or continue. `str()` says what to do."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that is about to be killed, or something else that is about to be damaged.

    text: its name in the output; container: the id of its container, if any; address: the address that it reports to
    listen on, if known. other: a process that is killed at the same moment; is_frozen: stopped by SIGSTOP instead of
    killed; tamper: damages something else than a process, and returns what `Arena.kill` does.
    """

    pid: int
    text: str
    container: str = ""
    address: str = ""
    other: int | None = None
    is_frozen: bool = False
    tamper: Callable[[], int] | None = None


class Arena(Protocol):
    """A cluster and the means to damage it."""

    @property
    def client(self) -> Client:
        """A client that follows the leader."""
        ...

    def survey(self, target: Target) -> ClusterStatus:
        """Records how many processes the intact cluster has.

        Raises DrillError when the target cannot be killed here.
        """
        ...

    def wait_complete(self, timeout_s: float) -> bool:
        """Repairs what does not repair itself, and waits until as many coordinators and task managers run as at the
        survey; False on a timeout.
        """
        ...

    def victim(self, target: Target, job: JobStatus, choice: random.Random) -> Victim:
        """Picks the process to kill. Raises DrillError when there is none."""
        ...

    def kill(self, victim: Victim) -> int:
        """Kills it without warning. Returns the wall clock in microseconds just before that.

        Of a storage: takes it away, puts it back, and returns the time of that. Of a link: returns when it is whole.
        """
        ...

    def make_folder(self, key: str) -> Path:
        """A new folder for a job's output, as the cluster's processes see it."""
        ...

    def fetch(self, folder: Path) -> Path:
        """The current content of the same folder, as this process sees it."""
        ...


def wait_for_cluster(client: Client, condition: Callable[[ClusterStatus], bool], timeout_s: float) -> bool:
    """Waits until the cluster's status fulfils the condition; no answer counts as "not yet". False on a timeout."""
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
    """The leader. Raises DrillError."""
    if status.leader is None:
        raise DrillError("the cluster has no leader; check the coordinators' logs")
    return status.leader


def busy_task_manager(status: ClusterStatus, job: JobStatus, choice: random.Random) -> TaskManagerStatus:
    """A task manager that runs a subtask of the job. Raises DrillError."""
    busy = {subtask.task_manager_id for subtask in job.subtasks}
    managers = sorted(
        (task_manager for task_manager in status.task_managers if task_manager.task_manager_id in busy), key=_by_id
    )
    if not managers:
        raise DrillError("no task manager runs a subtask of the job")
    return choice.choice(managers)


def _by_id(task_manager_status: TaskManagerStatus) -> str:
    return task_manager_status.task_manager_id
