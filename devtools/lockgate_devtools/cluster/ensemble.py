"""The cluster's own ZooKeeper servers: their ports, folders and settings. `zookeeper/server.py` runs each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockgate_ha.errors import ZooKeeperStartError

from lockgate_devtools.cluster import ports
from lockgate_devtools.cluster.errors import ClusterError
from lockgate_devtools.zookeeper import zoo_cfg
from lockgate_devtools.zookeeper.server import find_java


def require_java() -> None:
    """Raises ClusterError with one sentence when there is no Java that can run Spark and ZooKeeper."""
    try:
        find_java()
    except ZooKeeperStartError as error:
        raise ClusterError(str(error)) from error


@dataclass(frozen=True)
class EnsemblePlan:
    """The data folder and addresses of each server; they are kept over restarts of single servers.

    client_ports: one per server; peer_ports: two per server, empty for a single one.
    """

    folder: Path
    client_ports: tuple[int, ...]
    peer_ports: tuple[int, ...]

    @classmethod
    def make(cls, folder: Path, count: int, chosen: tuple[int, ...]) -> EnsemblePlan:
        """Uses the chosen ports (0 or missing: a free one).

        Raises ClusterError, also when the folder has the data of another number of servers.
        """
        try:
            zoo_cfg.check_number([folder / f"server-{number}" for number in range(3)], count)
        except ZooKeeperStartError as error:
            raise ClusterError(str(error)) from error
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
        """The settings of the process of server `number` (from 0), JSON-ready."""
        pairs = zip(self.peer_ports[::2], self.peer_ports[1::2], strict=True)
        return {
            "data_dir": str(self.folder / f"server-{number}"),
            "port": self.client_ports[number],
            "number": number + 1,
            "members": [[index, peer, election] for index, (peer, election) in enumerate(pairs, 1)],
        }
