"""What chaos tests run on: a cluster of real processes, and a ledger job whose result can be checked."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockgate_common.fault_points import VARIABLE, folder_variable, plant
from lockgate_devtools.cluster import LocalCluster
from lockgate_ha.paths import Paths
from lockgate_ha.protection import Protection
from lockgate_ha.zookeeper import connect
from lockgate_proto.messages import LeaderFailover, RestartStrategy, TaskManagerFailover
from lockgate_taskmanager.state.local_copies import COPIES_PREFIX

from lockgate.client import TERMINAL, Client, ClientError
from tests.chaos.history import LOOK_EVERY_S, History
from tests.drained import PATIENCE_S
from tests.ledger_job import LedgerJob, Submit

NO_WARMUP = {"warmup_runs": 0}
"""Task managers of most tests live for seconds: running the sample would cost half as much as their start."""
_TRICKLE = {"batch_interval_ms": 200}
"""Most jobs have an input with a rate. As many micro-batches as can be would take all that the processors have."""


class TestingCluster:
    """One cluster, used by many tests. `arm` plants a fault in a process that runs."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self._faults = directory / "faults"
        self._faults.mkdir(parents=True)
        self.environment = {VARIABLE: folder_variable(self._faults)}
        usual = {
            "taskmanager_restart_delay_ms": 500,  # no test measures how fast a survivor takes over
            "max_restart_delay_ms": 2_000,
            "start_timeout_ms": int(PATIENCE_S * 1000),
        }
        usual |= options | {"taskmanager": NO_WARMUP | _TRICKLE | options.get("taskmanager", {})}
        self.cluster = LocalCluster(directory / "cluster", environment=self.environment, **usual)
        self._never = threading.Event()
        self._jobs = 0
        self._armed: set[int] = set()  # process ids
        self._client: Client | None = None

    def __enter__(self) -> TestingCluster:
        self.cluster.start()
        self._client = self.new_client()
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        self.cluster.stop()

    @property
    def client(self) -> Client:
        """Follows the leader."""
        assert self._client is not None
        return self._client

    def new_client(self) -> Client:
        """Another one, which the caller closes."""
        return Client(
            self.cluster.coordinators,
            self.cluster.zookeeper,
            credentials=self.cluster.credentials(),
            patience_ms=int(PATIENCE_S * 1000),
        )

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Waits until the condition holds; fails with `what` otherwise. Errors of the client count as "not yet"."""
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(ClientError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s:g} s: {what}")
            self._never.wait(LOOK_EVERY_S)

    def wait_complete(self) -> None:
        """Waits until every process runs and is registered or in line, and no other is.

        Who was killed a moment ago has its place in line until its session ends.
        """
        for role, count in (
            ("coordinator", self.cluster.options.coordinators),
            ("taskmanager", self.cluster.options.taskmanagers),
        ):
            for number in range(count):
                self.cluster.wait_ready(role, number, PATIENCE_S)

        def is_whole() -> bool:
            registered = {task_manager.pid for task_manager in self.client.cluster().task_managers}
            return registered == self.pids("taskmanager") and self._is_lined_up()

        self.wait_until(is_whole, "the cluster is whole")
        self.wait_until(lambda: self.cluster.leader_number() is not None, "a live process leads")

    def wait_idle(self) -> None:
        """Waits until every slot is free: a job that has just ended holds its own for a moment."""

        def is_idle() -> bool:
            return all(
                task_manager.free_slots == task_manager.slots for task_manager in self.client.cluster().task_managers
            )

        self.wait_until(is_idle, "every slot is free")

    def pids(self, role: str) -> set[int]:
        """Of all processes of a role that run now."""
        return {pid for name, pid in self.cluster.pids().items() if name.startswith(f"{role}-")}

    def is_in_line(self, pid: int) -> bool:
        """Whether a coordinator takes part in the election: its session lives, whether it leads or stands by."""
        return pid in {coordinator.pid for coordinator in self.client.cluster().coordinators}

    def _is_lined_up(self) -> bool:
        return {coordinator.pid for coordinator in self.client.cluster().coordinators} == self.pids("coordinator")

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill_leader(self) -> int:
        """SIGKILL; returns the number of the process."""
        number = self.leader_number()
        self.cluster.kill("coordinator", number)
        return number

    def leader_number(self) -> int:
        """The number of the leading process."""
        found: list[int] = []

        def look() -> bool:
            number = self.cluster.leader_number()
            found.extend([] if number is None else [number])
            return number is not None

        self.wait_until(look, "a live process leads")
        return found[-1]

    def arm(self, role: str, number: int, fault: str) -> int:
        """Plants a fault in the process; returns its pid."""
        pid = self.cluster.pids()[f"{role}-{number}"]
        self._armed.add(pid)
        plant(self._faults, pid, fault)
        return pid

    def arm_standby(self, fault: str) -> int:
        """Plants a fault in the coordinator that leads next; returns its number. Needs exactly two coordinators."""
        standby = 1 - self.leader_number()
        self.arm("coordinator", standby, fault)
        return standby

    def disarm(self) -> None:
        """Takes every fault out that has not struck, or lasts."""
        while self._armed:
            plant(self._faults, self._armed.pop(), None)

    def tidy(self) -> None:
        """Cancels what runs, and takes every fault out that has not struck: it must not in the next test."""

        def is_quiet() -> bool:
            running = [job.job_key for job in self.client.jobs() if job.state not in TERMINAL]
            for key in running:
                self.client.cancel(key)
            return not running

        self.wait_until(is_quiet, "no job runs")
        self.disarm()

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def ledger(
        self,
        interval_ms: int = 300,
        follows: tuple[LedgerJob, str] | None = None,
        restart: RestartStrategy | None = None,
        seconds: float | None = None,
        failover: LeaderFailover = LeaderFailover.LEADER_FAILOVER_RESTART,
        submit: Submit | None = None,
        parts: TaskManagerFailover = TaskManagerFailover.TASK_MANAGER_FAILOVER_WHOLE,
    ) -> LedgerJob:
        """Submits a job; see LedgerJob for when it ends. follows: a job that it goes on with, from a pointer."""
        self._jobs += 1
        key = f"ledger-{self._jobs}"
        return LedgerJob(self, key, interval_ms, follows, restart, seconds, failover, submit, parts)

    def make_folder(self, key: str) -> Path:
        folder = self.directory / key
        folder.mkdir(parents=True)
        return folder

    def fetch(self, folder: Path) -> Path:
        """The folder itself: the processes share this machine's files."""
        return folder

    def history(self) -> History:
        """Watches the order of tokens and ids in ZooKeeper."""
        return History(self.cluster.zookeeper, self.protection)

    @property
    def protection(self) -> Protection:
        """Of the cluster's nodes in ZooKeeper."""
        return Protection(self.cluster.options.cluster, self.cluster.credentials().secret)

    def nodes(self) -> set[str]:
        """The paths of all nodes of the cluster in ZooKeeper but those that live no longer than a process."""
        found: set[str] = set()
        with contextlib.closing(connect(self.cluster.zookeeper, protection=self.protection)) as session:
            unread = [Paths(self.cluster.options.cluster).base]
            while unread:
                path = unread.pop()
                node = session.get(path)
                if node is not None and not node.owner:
                    found.add(path)
                    unread += [f"{path}/{name}" for name in session.children(path)]
        return found

    def stored_files(self) -> set[Path]:
        """All files in the HA storage."""
        return {path for path in Path(self.cluster.storage).rglob("*") if path.is_file()}

    def local_files(self) -> set[Path]:
        """What task managers have of jobs on their own disks: copies of snapshots, and databases.

        To os.walk a folder that is removed while it looks is an empty one; to Path.rglob that is an error.
        """
        kinds = (COPIES_PREFIX, "lockgate-state-")
        walk = [node for node in os.walk(self.cluster.directory) if Path(node[0]).name.startswith(kinds)]
        return {Path(at, name) for at, _, files in walk for name in files if name != "lock"}

    def checkpoint_files(self, pointer: str) -> list[Path]:
        """The state files beside a `_metadata` file."""
        folder = Path(pointer.removeprefix("file://")).parent
        return sorted(path for path in folder.iterdir() if path.name != "_metadata")


STOP, CONTINUE = signal.SIGSTOP, signal.SIGCONT
