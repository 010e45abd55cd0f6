"""The options of a cluster on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockgate_common.addresses import zookeeper_problem
from lockgate_common.tls import SecurityError, TlsFiles

from lockgate_devtools.cluster.errors import ClusterError

ROLES = ("zookeeper", "coordinator", "taskmanager")


@dataclass(frozen=True)
class ClusterOptions:
    """Number and settings of the processes. Times in milliseconds.

    zookeepers: 1 or 3 servers of the cluster's own; 0 together with `zookeeper="host:port,..."` uses a running one.
    coordinator_ports, zookeeper_ports: fixed ports by number of the process, 0 or missing means a free one.
    secret_file: shared by all processes and clients; empty means `DIR/secret`, made on first use.
    zookeeper_tls: how ZooKeeper is reached, the cluster's own servers included; None for plain text.
    tls: of every process and of clients, for 127.0.0.1; None: plain connections, which stay on this machine.
    relayed: processes reach each other and ZooKeeper through relays, so that links can be cut (`LocalCluster.links`).
    storage: path or pyarrow.fs URI of the HA storage; empty means `DIR/storage`.
    coordinator, taskmanager: fields of CoordinatorSettings and TaskManagerSettings that differ from the defaults,
    as JSON-ready values.
    environment: variables added to every process's environment; first_environment: process name ("coordinator-0") to
    variables for the first start of that process only, so that an injected fault does not occur again. supervise: dead
    processes are started again, after restart_delay_ms, zookeeper_restart_delay_ms or taskmanager_restart_delay_ms
    (longer, because the start takes whole cores that the survivors need to take over), doubled at each death within
    stable_after_ms of the start, up to max_restart_delay_ms.
    """

    coordinators: int = 2
    taskmanagers: int = 2
    slots: int = 2
    zookeepers: int = 1
    zookeeper: str = ""
    zookeeper_tls: TlsFiles | None = None
    cluster: str = "default"
    coordinator_ports: tuple[int, ...] = ()
    zookeeper_ports: tuple[int, ...] = ()
    secret_file: str = ""
    tls: TlsFiles | None = None
    relayed: bool = False
    storage: str = ""
    coordinator: Mapping[str, Any] = field(default_factory=dict)
    taskmanager: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    first_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    supervise: bool = True
    restart_delay_ms: int = 200
    taskmanager_restart_delay_ms: int = 2_000
    zookeeper_restart_delay_ms: int = 500
    max_restart_delay_ms: int = 30_000
    stable_after_ms: int = 10_000
    start_timeout_ms: int = 120_000
    stop_timeout_ms: int = 10_000

    def check(self) -> None:
        """Raises ClusterError naming the first option that cannot work."""
        if self.coordinators < 1 or self.taskmanagers < 0 or self.slots < 1:
            raise ClusterError("a cluster needs at least 1 coordinator and 1 slot a task manager")
        if self.zookeepers not in (0, 1, 3):
            raise ClusterError(f"{self.zookeepers} ZooKeeper servers cannot form an ensemble; use 1 or 3")
        if self.zookeepers == 0 and not self.zookeeper:
            raise ClusterError("no ZooKeeper: start one with the cluster or give the address of a running one")
        if self.zookeeper and (problem := zookeeper_problem(self.zookeeper)):
            raise ClusterError(f"--zookeeper cannot be {self.zookeeper!r}: {problem}")
        try:
            if self.tls is not None:
                self.tls.check(is_server=True)
        except SecurityError as error:
            raise ClusterError(str(error)) from error
        if len(self.coordinator_ports) > self.coordinators:
            raise ClusterError(f"{len(self.coordinator_ports)} ports for {self.coordinators} coordinators")
        if len(self.zookeeper_ports) > self.zookeepers:
            raise ClusterError(f"{len(self.zookeeper_ports)} ports for {self.zookeepers} ZooKeeper servers")
        if self.relayed and any(self.coordinator_ports):
            raise ClusterError("a relayed cluster chooses the coordinators' ports itself; omit them")
        ports = [port for port in (*self.coordinator_ports, *self.zookeeper_ports) if port]
        twice = [port for port in ports if ports.count(port) > 1]
        if twice:
            raise ClusterError(f"port {twice[0]} is given twice; each process needs one of its own")

    def count(self, role: str) -> int:
        """How many processes of a role the cluster has."""
        return {"zookeeper": self.zookeepers, "coordinator": self.coordinators, "taskmanager": self.taskmanagers}[role]
