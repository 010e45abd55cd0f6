"""A compose cluster as the target of a drill: containers are killed, or silently cut off from the others."""

from __future__ import annotations

import random
import threading
import time
from enum import Enum
from pathlib import Path, PurePosixPath

from lockgate_proto.messages import ClusterStatus, JobStatus

from lockgate.client import Client
from lockgate_devtools.drill.arena import (
    LOOK_EVERY_S,
    DrillError,
    Victim,
    busy_task_manager,
    leader_of,
    wait_for_cluster,
)
from lockgate_devtools.drill.model import Target
from lockgate_devtools.equipment import container_links
from lockgate_devtools.equipment.compose import COORDINATORS, ZOOKEEPERS, ComposeCluster
from lockgate_devtools.equipment.container_links import Endpoint

SHARED = PurePosixPath("/var/lib/lockgate/drill")
_READY_S = 180.0


class Damage(Enum):
    """How the victim is damaged."""

    KILL = "SIGKILL for every process in the container"
    CUT = "packets between the container and the others are dropped silently"


class ContainerArena:
    """A compose cluster as an Arena. folder: for copies of the jobs' output; task_managers: number of containers."""

    def __init__(
        self, client: Client, cluster: ComposeCluster, folder: Path, *, task_managers: int, blow: Damage = Damage.KILL
    ) -> None:
        self.client = client
        self._cluster = cluster
        self._folder = folder
        self._task_managers = task_managers
        self._blow = blow
        self._struck: list[Victim] = []
        self._never = threading.Event()
        # Looked up in advance: at the moment of the kill only a single command is left to run.
        self._containers = {name: cluster.containers(name)[0] for name in (*COORDINATORS, *ZOOKEEPERS)}
        self._endpoints = cluster.endpoints()

    def survey(self, target: Target) -> ClusterStatus:
        """Waits until the cluster is complete and the engine reports every container as healthy."""
        del target  # any of them can be killed here
        deadline = time.monotonic() + _READY_S
        while not (self.wait_complete(_READY_S) and self._cluster.is_healthy()):
            if time.monotonic() > deadline:
                raise DrillError(f"the cluster was not complete after {_READY_S:g} s; see its containers' logs")
            self._never.wait(LOOK_EVERY_S)
        return self.client.cluster()

    def wait_complete(self, timeout_s: float) -> bool:
        """Restarts killed containers, reconnects those that were cut off, and waits until the cluster is complete."""
        self.restore_containers()
        return wait_for_cluster(self.client, self._is_complete, timeout_s)

    def victim(self, target: Target, job: JobStatus, choice: random.Random) -> Victim:
        if target is Target.ZOOKEEPER:
            name = choice.choice(ZOOKEEPERS)
            return Victim(0, name, self._containers[name])
        status = self.client.cluster()
        leader = leader_of(status)
        if target is Target.LEADER:
            return Victim(leader.pid, f"leader {leader.coordinator_id}", self._containers[leader.coordinator_id])
        if target is Target.STANDBY:
            name = choice.choice([coordinator for coordinator in COORDINATORS if coordinator != leader.coordinator_id])
            return Victim(0, f"standby {name}", self._containers[name])
        busy = busy_task_manager(status, job, choice)
        # Its host name, and so its id, is the beginning of its container's id.
        return Victim(busy.pid, f"task manager {busy.task_manager_id}", busy.task_manager_id.removeprefix("tm-"))

    def kill(self, victim: Victim) -> int:
        endpoint, others = self._sides(victim)
        self._struck.append(victim)
        unix_us = time.time_ns() // 1000
        if self._blow is Damage.KILL:
            self._cluster.kill(victim.container)
        else:
            container_links.cut(endpoint, others)
        return unix_us

    def restore_containers(self) -> None:
        """Restarts killed containers, and reconnects those that were cut off."""
        struck, self._struck = self._struck, []
        for victim in struck:
            if self._blow is Damage.KILL:
                self._cluster.start(victim.container)
            else:
                container_links.heal(*self._sides(victim))

    def make_folder(self, key: str) -> Path:
        folder = SHARED / key
        self._cluster.compose("exec", "-T", "taskmanager", "mkdir", "-p", str(folder))
        return Path(folder)

    def fetch(self, folder: Path) -> Path:
        copy = self._folder / folder.name
        self._cluster.copy(self._cluster.containers("taskmanager")[0], str(folder), copy)
        return copy

    def _is_complete(self, status: ClusterStatus) -> bool:
        return (
            status.leader is not None
            and {coordinator.coordinator_id for coordinator in status.coordinators} >= set(COORDINATORS)
            and len(status.task_managers) == self._task_managers
        )

    def _sides(self, victim: Victim) -> tuple[Endpoint, tuple[Endpoint, ...]]:
        """The victim's container and all others, with their addresses when the cluster came up."""
        (endpoint,) = (endpoint for endpoint in self._endpoints if endpoint.container.startswith(victim.container))
        return endpoint, tuple(other for other in self._endpoints if other is not endpoint)
