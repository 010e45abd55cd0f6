"""ZooKeeper sessions over kazoo; no other package imports kazoo. `session` is one session; this package opens them."""

from __future__ import annotations

from collections.abc import Callable

from lockgate_common.tls import TlsFiles

from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.session import Session, SessionState, StateListener
from lockgate_ha.zookeeper.reasons import no_answer, trouble
from lockgate_ha.zookeeper.session import ZooKeeperSession
from lockgate_ha.zookeeper.tls import check
from lockgate_ha.zookeeper.trouble_watch import TroubleWatch


class ZooKeeperConnector:
    """Opens sessions with one ensemble. See `lockgate_ha.session.Connector`."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        protection: Protection,
        tls: TlsFiles | None,
        on_trouble: Callable[[str], None],
    ) -> None:
        self._hosts = hosts
        self._session_timeout_ms = session_timeout_ms
        self._protection = protection
        self._tls = tls
        self._troubles = TroubleWatch(self.trouble, on_trouble)

    @property
    def hosts(self) -> str:
        """`host:port,host:port/optional/root`."""
        return self._hosts

    @property
    def protection(self) -> Protection:
        return self._protection

    def open(self, listener: StateListener | None = None) -> Session:
        watch = self._troubles.session()

        def listen(state: SessionState, session: str) -> None:
            watch(state)
            if listener is not None:
                listener(state, session)

        return ZooKeeperSession(self._hosts, self._session_timeout_ms, listen, self._protection, self._tls)

    def trouble(self) -> str:
        return trouble(self._hosts, self._tls)


def connector(
    hosts: str,
    session_timeout_ms: int = 4_000,
    protection: Protection = UNPROTECTED,
    tls: TlsFiles | None = None,
    on_trouble: Callable[[str], None] = lambda _why: None,
) -> ZooKeeperConnector:
    """What Elector and LeaderRetrieval take as `connector`. Nothing is connected yet.

    hosts: `host:port`, several separated by commas, optionally followed by a root path.
    session_timeout_ms: ZooKeeper grants between 2 and 20 of its ticks, whatever is asked.
    protection: of the cluster whose nodes are read and written.
    tls: None for plain text. Raises SecurityError for files that cannot be used.
    on_trouble: called with the reason when a lost connection is not restored because of TLS, which is logged as well;
    must only enqueue.
    """
    check(tls)
    return ZooKeeperConnector(hosts, session_timeout_ms, protection, tls, on_trouble)


def connect(
    hosts: str,
    session_timeout_ms: int = 4_000,
    timeout_ms: int = 10_000,
    protection: Protection = UNPROTECTED,
    tls: TlsFiles | None = None,
) -> Session:
    """One connected session, for tools that only read.

    Raises StoreUnavailable without an answer in `timeout_ms`, SecurityError.
    """
    session = connector(hosts, session_timeout_ms, protection, tls).open()
    if session.wait_connected(timeout_ms):
        return session
    session.close()
    raise StoreUnavailable(no_answer(hosts, tls))
