"""The settings of a coordinator process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockgate_common.masking import masked
from lockgate_common.security import Credentials
from lockgate_common.settings import SettingsError, check_numbers, check_process


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The settings of one coordinator process.

    zookeeper: `host:port[,host:port...]`; storage: a local path or a pyarrow.fs URI that every coordinator and task
    manager of the cluster reaches; bind: `host:port` of the gRPC server, port 0 picks a free one; advertise:
    `host:port` that others use, empty for the bound address, which others must then be able to reach; coordinator_id:
    empty for a generated one; tokens_file: see `TokenBook`, empty for no tokens; certificate_roles: by common name or
    alternative name of a client's certificate. Times are in milliseconds.
    """

    zookeeper: str
    storage: str
    cluster: str = "default"
    bind: str = "127.0.0.1:7070"
    advertise: str = ""
    credentials: Credentials = field(default_factory=Credentials)
    tokens_file: str = ""
    certificate_roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    session_timeout_ms: int = 4000
    heartbeat_ms: int = 500
    heartbeat_timeout_ms: int = 3000
    coordinator_id: str = ""
    max_watchers: int = 2_000
    max_task_managers: int = 2_000
    connect_timeout_ms: int = 30_000

    def check(self) -> None:
        """Raises SettingsError naming the first setting that cannot work."""
        names = {"cluster": self.cluster, "coordinator_id": self.coordinator_id or "made"}
        check_process(self.zookeeper, self.bind, self.advertise, names)
        if not self.storage:
            raise SettingsError("storage: no folder or URI is named; checkpoints need one that all processes reach")
        if masked(self.storage) != self.storage:
            raise SettingsError(
                f"storage: {masked(self.storage)} has credentials in it, which would lie in ZooKeeper; "
                "give them through the environment of every process (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            )
        check_numbers(self)
        if self.heartbeat_timeout_ms < 2 * self.heartbeat_ms:
            raise SettingsError(
                f"heartbeat_timeout_ms: {self.heartbeat_timeout_ms} is less than two heartbeats of "
                f"{self.heartbeat_ms} ms; a single late beat would count as a loss"
            )
