"""The cluster's own ZooKeeper servers: their ports, folders and settings. The processes run `ha.zookeeper.server`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ha.errors import ZooKeeperStartError
from ha.zookeeper.server import find_java
from lockgate.local import ports
from lockgate.local.errors import ClusterError


def require_java() -> None:
    """Raises ClusterError with one sentence when there is no Java that Spark and ZooKeeper can run on."""
    try:
        find_java()
    except ZooKeeperStartError as error:
        raise ClusterError(str(error)) from error


@dataclass(frozen=True)
class EnsemblePlan:
    """Where each server keeps its data and where it listens; kept over restarts of single servers.

    client_ports: one a server; peer_ports: two a server, empty for a single one.
    """

    folder: Path
    client_ports: tuple[int, ...]
    peer_ports: tuple[int, ...]

    @classmethod
    def make(cls, folder: Path, count: int, chosen: tuple[int, ...]) -> EnsemblePlan:
        """Uses the chosen ports (0 or missing: a free one). Raises ClusterError."""
        fixed = tuple(chosen[:count]) + (0,) * (count - len(chosen))
        peers = 2 * count if count > 1 else 0
        free = iter(ports.choose(count + peers))
        client_ports = tuple(port or next(free) for port in fixed)
        return cls(folder, client_ports, tuple(next(free) for _ in range(peers)))

    @property
    def connect_string(self) -> str:
        """`host:port,host:port`."""
        return ",".join(f"{ports.HOST}:{port}" for port in self.client_ports)

    def settings(self, number: int) -> dict[str, Any]:
        """What the process of server `number` (from 0) is told, JSON-ready."""
        pairs = zip(self.peer_ports[::2], self.peer_ports[1::2], strict=True)
        return {
            "data_dir": str(self.folder / f"server-{number}"),
            "port": self.client_ports[number],
            "number": number + 1,
            "members": [[one, peer, election] for one, (peer, election) in enumerate(pairs, 1)],
        }
