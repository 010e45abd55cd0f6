"""ZooKeeper: the only home of kazoo (`session`), and the server that comes with PySpark (`server`)."""

from __future__ import annotations

from ha.errors import StoreUnavailable
from ha.session import Session, StateListener
from ha.zookeeper.session import ZooKeeperSession


class ZooKeeperConnector:
    """Opens sessions with one ensemble. See `ha.session.Connector`."""

    def __init__(self, hosts: str, session_timeout_ms: int) -> None:
        self._hosts = hosts
        self._session_timeout_ms = session_timeout_ms

    @property
    def hosts(self) -> str:
        """`host:port,host:port/optional/root`."""
        return self._hosts

    def open(self, listener: StateListener | None = None) -> Session:
        """See `ha.session.Connector.open`."""
        return ZooKeeperSession(self._hosts, self._session_timeout_ms, listener)


def connector(hosts: str, session_timeout_ms: int = 4_000) -> ZooKeeperConnector:
    """What Elector and LeaderRetrieval take as `connector`. Nothing is connected yet.

    hosts: `host:port`, several separated by commas, optionally followed by a root path.
    session_timeout_ms: ZooKeeper grants between 2 and 20 of its ticks, whatever is asked.
    """
    return ZooKeeperConnector(hosts, session_timeout_ms)


def connect(hosts: str, session_timeout_ms: int = 4_000, timeout_ms: int = 10_000) -> Session:
    """One connected session, for tools that only read. Raises StoreUnavailable when nobody answers in `timeout_ms`."""
    session = connector(hosts, session_timeout_ms).open()
    if session.wait_connected(timeout_ms):
        return session
    session.close()
    raise StoreUnavailable(f"no ZooKeeper answers at {hosts}; start it (`lockgate zookeeper`) or check the address")
