"""The links between a cluster's processes, which can be cut: each process is reached through a relay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from lockgate_common.addresses import host_and_port

from lockgate_devtools.cluster import ports
from lockgate_devtools.cluster.errors import ClusterError
from lockgate_devtools.cluster.relays import Relays
from lockgate_devtools.cluster.sockets import connections, is_known, sockets


class Links:
    """Links by the names of the two processes ("coordinator-0"). pids: of all processes that run, by name.

    Processes must use the addresses in `settings`. Processes outside the cluster are never cut off. Raises
    ClusterError where the system does not say which process has made a connection.
    """

    def __init__(self, names: tuple[str, ...], zookeeper: str, pids: Callable[[], Mapping[str, int]]) -> None:
        """names: of coordinators and task managers; zookeeper: its connect string, of servers of this machine."""
        if not is_known():
            raise ClusterError(
                "links between processes can be cut only where /proc/net/tcp names connections: on Linux"
            )
        self._pids = pids
        servers = [host_and_port(address)[1] for address in zookeeper.split(",")]
        free = iter(ports.choose(2 * len(names) + len(servers)))
        self._addresses = {name: (next(free), next(free)) for name in names}
        relayed = {f"zookeeper-{number}": (next(free), port) for number, port in enumerate(servers)}
        self.zookeeper = ",".join(f"{ports.HOST}:{port}" for port, _ in relayed.values())
        """The connect string for the cluster's processes."""
        self._relays = Relays(self._owners)
        for name, (port, server_port) in {**self._addresses, **relayed}.items():
            self._relays.add(name, port, server_port)

    def port(self, name: str) -> int:
        """Where a coordinator or task manager itself listens; for tools, which need no relay."""
        return self._addresses[name][1]

    def settings(self, name: str) -> dict[str, str]:
        """What a coordinator or task manager must be given."""
        port, server_port = self._addresses[name]
        return {
            "zookeeper": self.zookeeper,
            "bind": f"{ports.HOST}:{server_port}",
            "advertise": f"{ports.HOST}:{port}",
        }

    @contextmanager
    def cut_off(self, one: str, other: str, *, one_way: bool = False) -> Iterator[None]:
        """Nothing arrives between the two while the block runs; one_way: nothing that `one` has sent. See `Relays`."""
        self._relays.cut([(one, other)] if one_way else [(one, other), (other, one)])
        try:
            yield
        finally:
            self._relays.heal()

    def servers_of(self, name: str) -> set[str]:
        """The processes to which this one has connected."""
        return self._relays.servers_of(name)

    def close(self) -> None:
        """Ends all connections. Idempotent."""
        self._relays.close()

    def _owners(self, ends: Collection[tuple[int, int]]) -> dict[tuple[int, int], str]:
        owners: dict[str, str] = {}
        for name, pid in self._pids().items():
            with suppress(OSError):  # it has just ended
                owners |= dict.fromkeys(sockets(pid), name)
        inodes = connections()
        return {end: owners.get(inodes.get(end, ""), "") for end in ends}
