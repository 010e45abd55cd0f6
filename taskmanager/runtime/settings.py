"""What a task manager process is told when it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockgate_proto.security import Credentials

from lockgate_process.addresses import address_problem, zookeeper_problem
from taskmanager.runtime.errors import SettingsError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_SLOTS = 1_024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskManagerSettings:
    """Everything one task manager process needs to know.

    zookeeper: `host:port[,host:port...]`; bind: `host:port` of the data exchange, port 0 picks a free one;
    advertise: `host:port` that other task managers use, empty means the bound address, which then has to be one that
    others can connect to, port 0 the bound port;
    slots: how many subtasks of each vertex fit here; spark_master: empty means `local[<slots>]`;
    work_dir: folder for Spark's scratch files; target_batch_ms: work aimed at in one micro-batch;
    max_batch_bytes: upper bound of one micro-batch's input; task_manager_id: empty means one is made;
    connect_timeout_ms: how long ZooKeeper may be silent at the start.
    """

    zookeeper: str
    work_dir: str
    cluster: str = "default"
    bind: str = "127.0.0.1:0"
    advertise: str = ""
    slots: int = 2
    spark_master: str = ""
    spark_options: Mapping[str, str] = field(default_factory=dict)
    credentials: Credentials = field(default_factory=Credentials)
    session_timeout_ms: int = 4000
    heartbeat_ms: int = 500
    target_batch_ms: int = 300
    max_batch_bytes: int = 32 * MIB
    task_manager_id: str = ""
    connect_timeout_ms: int = 30_000

    @property
    def master(self) -> str:
        """The Spark master URL in force."""
        return self.spark_master or f"local[{self.slots}]"

    def check(self) -> None:
        """Raises SettingsError naming the first setting that cannot work."""
        if not self.zookeeper:
            raise SettingsError("zookeeper: no server is named; give host:port[,host:port...]")
        if problem := zookeeper_problem(self.zookeeper):
            raise SettingsError(f"zookeeper: {self.zookeeper!r} will not do, {problem}")
        if not self.work_dir:
            raise SettingsError("work_dir: no folder is named; Spark needs one for its scratch files")
        for name, text in (("cluster", self.cluster), ("task_manager_id", self.task_manager_id or "tm")):
            if not _NAME.fullmatch(text):
                raise SettingsError(f"{name}: {text!r} is not a name; use 1 to 64 of A-Z a-z 0-9 . _ -")
        problem = address_problem(self.bind, self.advertise)
        if problem:
            raise SettingsError(problem)
        limits = {"slots": 1, "session_timeout_ms": 500, "heartbeat_ms": 20, "target_batch_ms": 10}
        for name, least in (limits | {"max_batch_bytes": 1024, "connect_timeout_ms": 1}).items():
            if getattr(self, name) < least:
                raise SettingsError(f"{name}: {getattr(self, name)} is too small; use {least} or more")
        if self.slots > MAX_SLOTS:
            raise SettingsError(f"slots: {self.slots} is too many; coordinators take up to {MAX_SLOTS}")
