"""A compose cluster as the place of a drill: containers are killed, or cut off from the others without a sound."""

from __future__ import annotations

import random
import threading
import time
from enum import Enum
from pathlib import Path, PurePosixPath

from lockgate_proto.messages import ClusterStatus, JobStatus

from lockgate.client import Client
from lockgate.drill.arena import (
    LOOK_EVERY_S,
    DrillError,
    Victim,
    busy_task_manager,
    leader_of,
    wait_for_cluster,
)
from lockgate.drill.model import Target
from lockgate.local import links
from lockgate.local.compose import COORDINATORS, ZOOKEEPERS, ComposeCluster
from lockgate.local.links import Endpoint

SHARED = PurePosixPath("/var/lib/lockgate/drill")
_READY_S = 180.0


class Blow(Enum):
    """What happens to the victim."""

    KILL = "SIGKILL for every process in the container"
    CUT = "what the container and the others send to each other vanishes, and nobody is told"


class ContainerArena:
    """See Arena. folder: for copies of the jobs' output; task_managers: how many containers of them there are."""

    def __init__(
        self, client: Client, cluster: ComposeCluster, folder: Path, *, task_managers: int, blow: Blow = Blow.KILL
    ) -> None:
        self.client = client
        self._cluster = cluster
        self._folder = folder
        self._task_managers = task_managers
        self._blow = blow
        self._struck: list[Victim] = []
        self._never = threading.Event()
        # Looked up beforehand: at the moment of the blow a single command is left to run.
        self._containers = {name: cluster.containers(name)[0] for name in (*COORDINATORS, *ZOOKEEPERS)}
        self._endpoints = cluster.endpoints()

    def survey(self, target: Target) -> ClusterStatus:
        """See Arena. Waits until the cluster is whole and the engine has found every container healthy."""
        del target  # any of them can be struck here
        deadline = time.monotonic() + _READY_S
        while not (self.wait_whole(_READY_S) and self._cluster.is_healthy()):
            if time.monotonic() > deadline:
                raise DrillError(f"the cluster was not whole after {_READY_S:g} s; see its containers' logs")
            self._never.wait(LOOK_EVERY_S)
        return self.client.cluster()

    def wait_whole(self, timeout_s: float) -> bool:
        """See Arena. What was struck is started again, or let back to the others, first."""
        self.mend()
        return wait_for_cluster(self.client, self._is_whole, timeout_s)

    def victim(self, target: Target, job: JobStatus, choice: random.Random) -> Victim:
        """See Arena."""
        if target is Target.ZOOKEEPER:
            name = choice.choice(ZOOKEEPERS)
            return Victim(0, name, self._containers[name])
        status = self.client.cluster()
        leader = leader_of(status)
        if target is Target.LEADER:
            return Victim(leader.pid, f"leader {leader.coordinator_id}", self._containers[leader.coordinator_id])
        if target is Target.STANDBY:
            name = choice.choice([one for one in COORDINATORS if one != leader.coordinator_id])
            return Victim(0, f"standby {name}", self._containers[name])
        one = busy_task_manager(status, job, choice)
        # Its host name, and so its id, is what its container's id begins with.
        return Victim(one.pid, f"task manager {one.task_manager_id}", one.task_manager_id.removeprefix("tm-"))

    def kill(self, victim: Victim) -> int:
        """See Arena."""
        endpoint, others = self._sides(victim)
        self._struck.append(victim)
        unix_us = time.time_ns() // 1000
        if self._blow is Blow.KILL:
            self._cluster.kill(victim.container)
        else:
            links.cut(endpoint, others)
        return unix_us

    def mend(self) -> None:
        """Starts what was killed, lets what was cut off back to the others."""
        struck, self._struck = self._struck, []
        for victim in struck:
            if self._blow is Blow.KILL:
                self._cluster.start(victim.container)
            else:
                links.heal(*self._sides(victim))

    def make_folder(self, key: str) -> Path:
        """See Arena."""
        folder = SHARED / key
        self._cluster.compose("exec", "-T", "taskmanager", "mkdir", "-p", str(folder))
        return Path(folder)

    def fetch(self, folder: Path) -> Path:
        """See Arena."""
        copy = self._folder / folder.name
        self._cluster.copy(self._cluster.containers("taskmanager")[0], str(folder), copy)
        return copy

    def _is_whole(self, status: ClusterStatus) -> bool:
        return (
            status.leader is not None
            and {one.coordinator_id for one in status.coordinators} >= set(COORDINATORS)
            and len(status.task_managers) == self._task_managers
        )

    def _sides(self, victim: Victim) -> tuple[Endpoint, tuple[Endpoint, ...]]:
        """The victim's container and every other one, where they were when the cluster came up."""
        (endpoint,) = (one for one in self._endpoints if one.container.startswith(victim.container))
        return endpoint, tuple(one for one in self._endpoints if one is not endpoint)
