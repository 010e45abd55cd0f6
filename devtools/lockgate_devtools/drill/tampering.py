"""What a drill does to its own cluster besides signals: to links, clocks and the storage. No process is damaged."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lockgate_common import private_folder
from lockgate_common.clock import unix_us
from lockgate_common.fault_points import VARIABLE, clock_fault, folder_variable, full_fault, plant

from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.drill.arena import DrillError, Victim
from lockgate_devtools.drill.model import CLOCK_OFF_S, Target

_AWAY_S = 3.0  # the storage: longer than a checkpoint takes, shorter than its timeout
_CUT_S = 6.0  # links: longer than a session lives, and than a task manager may be silent
_OFF_S = 3.0  # a clock, at least: several checkpoints

_never = threading.Event()


def faults_folder(cluster: LocalCluster) -> Path:
    """Where faults of the cluster's processes are planted."""
    return cluster.directory.with_name("faults")


def prepare(directory: Path) -> dict[str, str]:
    """Makes that folder for a cluster that will be in `directory`. What its processes' environment must have."""
    folder = directory.with_name("faults")
    private_folder.make_missing(folder)
    return {VARIABLE: folder_variable(folder)}


class Tampering:
    """Of one cluster, which was started with `prepare`, and relayed where links are to be cut."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._off: set[int] = set()  # pids of those whose clock is off

    def victim(self, target: Target, leader_pid: int, busy_pid: int, choice: random.Random) -> Victim:
        """What is tampered with. leader_pid, busy_pid: of the leader, and of a task manager that runs the job."""
        storage = Path(self._cluster.storage)
        if target is Target.STORAGE:
            return Victim(0, f"the storage, away for {_AWAY_S:g} s", tamper=partial(take_away, storage))
        if target is Target.FULL_STORAGE:
            return Victim(0, f"the storage, full for {_AWAY_S:g} s", tamper=partial(self._fill, storage))
        if target.is_clock:
            pid = leader_pid if target is Target.LEADER_CLOCK else busy_pid
            off_s = choice.choice((CLOCK_OFF_S, -CLOCK_OFF_S))
            text = f"the clock of {self._name(pid)}, {abs(off_s)} s {'fast' if off_s > 0 else 'slow'}"
            return Victim(pid, text, tamper=partial(self._set_off, pid, off_s))
        one, other = self._link(target, self._name(leader_pid), self._name(busy_pid), choice)
        if target.is_one_way and choice.random() < 0.5:
            one, other = other, one
        how = f"from {one} to {other}" if target.is_one_way else f"between {one} and {other}"
        used = "" if self._are_connected(one, other) else ", which carries nothing now"
        return Victim(0, f"the link {how}{used}, cut for {_CUT_S:g} s", tamper=partial(self._cut, one, other, target))

    def repair(self) -> None:
        """Sets every clock right."""
        while self._off:
            plant(faults_folder(self._cluster), self._off.pop(), None)

    def _link(self, target: Target, leader: str, busy: str, choice: random.Random) -> tuple[str, str]:
        if target in (Target.LINK_LEADER_TASKMANAGER, Target.ONE_WAY_LEADER_TASKMANAGER):
            return leader, busy
        if target in (Target.LINK_TASKMANAGERS, Target.ONE_WAY_TASKMANAGERS):
            return busy, choice.choice(self._peers(busy))
        assert self._cluster.links is not None
        servers = {name for name in self._cluster.links.servers_of(leader) if name.startswith("zookeeper-")}
        if not servers:
            raise DrillError(f"{leader} has no connection to ZooKeeper")
        return leader, min(servers)

    def _peers(self, busy: str) -> list[str]:
        """Other task managers, those with a connection to or from this one if there are any."""
        others = [name for name in sorted(self._cluster.pids()) if name.startswith("taskmanager-") and name != busy]
        if not others:
            raise DrillError("there is no link between task managers: only one runs")
        return [name for name in others if self._are_connected(busy, name)] or others

    def _are_connected(self, one: str, other: str) -> bool:
        links = self._cluster.links
        assert links is not None
        return other in links.servers_of(one) or one in links.servers_of(other)

    def _name(self, pid: int) -> str:
        for name, own in self._cluster.pids().items():
            if own == pid:
                return name
        raise DrillError(f"pid {pid} is no longer a process of the cluster")

    def _cut(self, one: str, other: str, target: Target) -> int:
        """Times count from the cut."""
        links = self._cluster.links
        assert links is not None
        struck_us = unix_us()
        with links.cut_off(one, other, one_way=target.is_one_way):
            _never.wait(_CUT_S)
        return struck_us

    def _set_off(self, pid: int, off_s: int) -> int:
        struck_us = unix_us()
        self._off.add(pid)
        plant(faults_folder(self._cluster), pid, clock_fault(off_s))
        _never.wait(_OFF_S)
        return struck_us

    def _fill(self, storage: Path) -> int:
        """Times count from when there is space again."""
        pids = [pid for name, pid in self._cluster.pids().items() if not name.startswith("zookeeper-")]
        for pid in pids:
            plant(faults_folder(self._cluster), pid, full_fault(storage))
        try:
            _never.wait(_AWAY_S)
        finally:
            for pid in pids:
                plant(faults_folder(self._cluster), pid, None)
        return unix_us()


def take_away(folder: Path, wait: Callable[[float], object] = _never.wait) -> int:
    """Renames the folder for a while, and returns when it is back, in microseconds. A file in its place keeps writers
    from making another one.
    """
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    try:
        folder.touch()
        wait(_AWAY_S)
    finally:  # however the drill ends
        folder.unlink(missing_ok=True)
        away.rename(folder)
    return unix_us()
