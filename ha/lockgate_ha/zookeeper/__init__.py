"""ZooKeeper sessions over kazoo; no other package imports kazoo. `session` is one session; this package opens them."""

from __future__ import annotations

from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.session import Session, StateListener
from lockgate_ha.zookeeper.session import ZooKeeperSession


class ZooKeeperConnector:
    """Opens sessions with one ensemble. See `lockgate_ha.session.Connector`."""

    def __init__(self, hosts: str, session_timeout_ms: int, protection: Protection) -> None:
        self._hosts = hosts
        self._session_timeout_ms = session_timeout_ms
        self._protection = protection

    @property
    def hosts(self) -> str:
        """`host:port,host:port/optional/root`."""
        return self._hosts

    @property
    def protection(self) -> Protection:
        return self._protection

    def open(self, listener: StateListener | None = None) -> Session:
        return ZooKeeperSession(self._hosts, self._session_timeout_ms, listener, self._protection)


def connector(hosts: str, session_timeout_ms: int = 4_000, protection: Protection = UNPROTECTED) -> ZooKeeperConnector:
    """What Elector and LeaderRetrieval take as `connector`. Nothing is connected yet.

    hosts: `host:port`, several separated by commas, optionally followed by a root path.
    session_timeout_ms: ZooKeeper grants between 2 and 20 of its ticks, whatever is asked.
    protection: of the cluster whose nodes are read and written.
    """
    return ZooKeeperConnector(hosts, session_timeout_ms, protection)


def connect(
    hosts: str,
    session_timeout_ms: int = 4_000,
    timeout_ms: int = 10_000,
    protection: Protection = UNPROTECTED,
) -> Session:
    """One connected session, for tools that only read. Raises StoreUnavailable without an answer in `timeout_ms`."""
    session = connector(hosts, session_timeout_ms, protection).open()
    if session.wait_connected(timeout_ms):
        return session
    session.close()
    raise StoreUnavailable(f"ZooKeeper does not answer at {hosts}; start `lockgate zookeeper` or check the address")
