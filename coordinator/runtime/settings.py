"""What a coordinator process is told when it starts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lockgate_proto.security import Credentials

from coordinator.runtime.errors import SettingsError
from lockgate_process.addresses import address_problem, zookeeper_problem

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Everything one coordinator process needs to know.

    zookeeper: `host:port[,host:port...]`; storage: a local path or a pyarrow.fs URI that every coordinator and
    task manager of the cluster reaches; bind: `host:port` of the gRPC server, port 0 picks a free one;
    advertise: `host:port` that others use, empty means the bound address, which then has to be one that others can
    connect to; coordinator_id: empty means one is made.
    Times in milliseconds.
    """

    zookeeper: str
    storage: str
    cluster: str = "default"
    bind: str = "127.0.0.1:7070"
    advertise: str = ""
    credentials: Credentials = field(default_factory=Credentials)
    session_timeout_ms: int = 4000
    heartbeat_ms: int = 500
    heartbeat_timeout_ms: int = 3000
    coordinator_id: str = ""
    max_watchers: int = 2_000
    max_task_managers: int = 2_000
    connect_timeout_ms: int = 30_000

    def check(self) -> None:
        """Raises SettingsError naming the first setting that cannot work."""
        if not self.zookeeper:
            raise SettingsError("zookeeper: no server is named; give host:port[,host:port...]")
        if problem := zookeeper_problem(self.zookeeper):
            raise SettingsError(f"zookeeper: {self.zookeeper!r} will not do, {problem}")
        if not self.storage:
            raise SettingsError("storage: no folder or URI is named; checkpoints need one that all processes reach")
        if not _NAME.fullmatch(self.cluster):
            raise SettingsError(f"cluster: {self.cluster!r} is not a name; use 1 to 64 of A-Z a-z 0-9 . _ -")
        if self.coordinator_id and not _NAME.fullmatch(self.coordinator_id):
            raise SettingsError(
                f"coordinator_id: {self.coordinator_id!r} is not a name; use 1 to 64 of A-Z a-z 0-9 . _ -"
            )
        problem = address_problem(self.bind, self.advertise)
        if problem:
            raise SettingsError(problem)
        self._check_numbers()

    def _check_numbers(self) -> None:
        limits = {
            "session_timeout_ms": 500,
            "heartbeat_ms": 20,
            "max_watchers": 1,
            "max_task_managers": 1,
            "connect_timeout_ms": 1,
        }
        for name, least in limits.items():
            value = getattr(self, name)
            if value < least:
                raise SettingsError(f"{name}: {value} is too small; use {least} or more")
        if self.heartbeat_timeout_ms < 2 * self.heartbeat_ms:
            raise SettingsError(
                f"heartbeat_timeout_ms: {self.heartbeat_timeout_ms} is less than two heartbeats of "
                f"{self.heartbeat_ms} ms; a single late beat would count as a loss"
            )
