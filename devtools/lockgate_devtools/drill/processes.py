"""A cluster of processes on this machine, as the target of a drill."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path

from lockgate_common import private_folder
from lockgate_proto.messages import ClusterStatus, JobStatus

from lockgate.client import Client
from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.drill.arena import (
    LOOK_EVERY_S,
    DrillError,
    Victim,
    busy_task_manager,
    leader_of,
    wait_for_cluster,
)
from lockgate_devtools.drill.freezing import freeze
from lockgate_devtools.drill.identity import listens_at
from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.tampering import Tampering

_ANYWHERE = (Target.LEADER, Target.STANDBY, Target.TASKMANAGER)


class ProcessArena:
    """The drill's own cluster (`cluster` is set) or one that is already running. folder: for the jobs' output."""

    def __init__(self, client: Client, cluster: LocalCluster | None, folder: Path) -> None:
        self.client = client
        self._folder = folder
        self._cluster = cluster
        self._never = threading.Event()
        self._coordinators = self._task_managers = 0
        self._frozen: list[int] = []
        self._tampering = Tampering(cluster) if cluster is not None else None

    def survey(self, target: Target) -> ClusterStatus:
        status = self._wait_for_task_managers()
        self._coordinators, self._task_managers = len(_coordinators(status)), len(_task_managers(status))
        if (target is Target.STANDBY or target.strikes_leader) and self._coordinators < 2:
            raise DrillError("the cluster has no standby; start another coordinator before you kill one")
        if target not in _ANYWHERE and self._cluster is None:
            raise DrillError(f"the drill attacks {target.value} only in its own cluster; omit --cluster")
        processes = [(coordinator.address, coordinator.pid) for coordinator in status.coordinators]
        processes += [(task_manager.address, task_manager.pid) for task_manager in status.task_managers]
        strangers = [f"{address} (pid {pid})" for address, pid in processes if not listens_at(pid, address)]
        if self._cluster is None and strangers:
            raise DrillError(
                "the drill kills processes by their pid, so it must run on the cluster's machine, as its user, not "
                f"from outside its containers; these processes do not listen here: {', '.join(strangers)}"
            )
        return status

    def wait_complete(self, timeout_s: float) -> bool:
        if self._tampering is not None:
            self._tampering.repair()
        while self._frozen:
            with contextlib.suppress(ProcessLookupError):  # it may have been replaced meanwhile
                os.kill(self._frozen.pop(), signal.SIGCONT)

        def is_complete(status: ClusterStatus) -> bool:
            coordinators, task_managers = _coordinators(status), _task_managers(status)
            return len(coordinators) >= self._coordinators and len(task_managers) >= self._task_managers

        return wait_for_cluster(self.client, is_complete, timeout_s)

    def victim(self, target: Target, job: JobStatus, choice: random.Random) -> Victim:
        if target is Target.ZOOKEEPER:
            assert self._cluster is not None
            servers = {name: pid for name, pid in self._cluster.pids().items() if name.startswith("zookeeper-")}
            name = choice.choice(sorted(servers))
            return Victim(servers[name], name)
        status = self.client.cluster()
        leader = leader_of(status)
        is_frozen = target in (Target.FROZEN_LEADER, Target.FROZEN_TASKMANAGER)
        if target in (Target.LEADER, Target.FROZEN_LEADER):
            name = f"leader {leader.coordinator_id}" + ", frozen" * is_frozen
            return Victim(leader.pid, name, address=leader.address, is_frozen=is_frozen)
        if target is Target.STANDBY:
            alive = _coordinators(status) - {leader.pid}
            standbys = sorted(
                (coordinator.pid, coordinator.address)
                for coordinator in status.coordinators
                if coordinator.pid in alive
            )
            pid, address = choice.choice(standbys)
            return Victim(pid, "a standby", address=address)
        busy = busy_task_manager(status, job, choice)
        if target.is_tampering:
            assert self._tampering is not None
            return self._tampering.victim(target, leader.pid, busy.pid, choice)
        name = f"task manager {busy.task_manager_id}"
        if target is Target.LEADER_AND_TASKMANAGER:
            return Victim(leader.pid, f"leader {leader.coordinator_id} and {name}", other=busy.pid)
        return Victim(busy.pid, name + ", frozen" * is_frozen, address=busy.address, is_frozen=is_frozen)

    def kill(self, victim: Victim) -> int:
        """Kills it, after checking its identity once more if the cluster is not the drill's own."""
        if victim.tamper is not None:
            return victim.tamper()
        if self._cluster is None and not listens_at(victim.pid, victim.address):
            raise DrillError(f"pid {victim.pid} is no longer {victim.text}; nothing was killed")
        unix_us = time.time_ns() // 1000
        try:
            if victim.is_frozen:
                self._frozen.append(victim.pid)
                return freeze(victim.pid, self._folder)
            os.kill(victim.pid, signal.SIGKILL)
            if victim.other is not None:
                os.kill(victim.other, signal.SIGKILL)
        except OSError as error:
            raise DrillError(f"cannot kill {victim.text} (pid {victim.pid}): {error.strerror}") from error
        return unix_us

    def make_folder(self, key: str) -> Path:
        folder = self._folder / key
        private_folder.make_missing(folder)  # the one above may be open to others
        return folder

    def fetch(self, folder: Path) -> Path:
        return folder

    def _wait_for_task_managers(self) -> ClusterStatus:
        """The cluster once it is complete (an own one: all task managers registered), or its status after a while."""
        wanted = self._cluster.options.taskmanagers if self._cluster else 1
        deadline = time.monotonic() + 30
        while True:
            status = self.client.cluster()
            if len(status.task_managers) >= wanted:
                return status
            if time.monotonic() > deadline:
                raise DrillError(f"{len(status.task_managers)} of {wanted} task managers have registered after 30 s")
            self._never.wait(LOOK_EVERY_S)


def _coordinators(status: ClusterStatus) -> set[int]:
    """Pids of running coordinators; a dead one stays listed until its ZooKeeper session has expired."""
    return {coordinator.pid for coordinator in status.coordinators if _is_alive(coordinator.pid)}


def _task_managers(status: ClusterStatus) -> set[int]:
    return {task_manager.pid for task_manager in status.task_managers if _is_alive(task_manager.pid)}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
