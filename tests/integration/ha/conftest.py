"""Both kinds of ZooKeeper behind one face, so that the twin is held to the contract of the real one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from kazoo.client import KazooClient
from lockgate_common.tls import TlsFiles
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.elector import Elector
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.protection import Protection
from lockgate_ha.session import Connector, Session
from lockgate_ha.zookeeper import connector as zookeeper_connector
from lockgate_ha.zookeeper import reasons
from lockgate_ha.zookeeper.session import ZooKeeperSession
from lockgate_ha.zookeeper.tls import transport
from lockgate_proto.messages import LeaderRecord

from tests.certificates import make_certificates

WAIT_S = 120.0
_TRIES = 20
SESSION_MS = 20_000  # no test waits for its end: what is to be over is ended by hand


@pytest.fixture(autouse=True)
def _patient_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of why ZooKeeper does not answer: a busy server takes its time over a handshake."""
    monkeypatch.setattr(reasons, "_LIMIT_S", 10.0)


class Recorder:
    """A listener that keeps what it heard, and lets a test wait for it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []
        self.changed = threading.Condition()

    def _add(self, name: str, value: object = None) -> None:
        with self.changed:
            self.heard.append((name, value))
            self.changed.notify_all()

    def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        self._add("granted", (grant, detected_unix_us))

    def on_suspended(self) -> None:
        self._add("suspended")

    def on_resumed(self) -> None:
        self._add("resumed")

    def on_revoked(self, reason: str) -> None:
        self._add("revoked", reason)

    def on_leader(self, leader: LeaderRecord | None) -> None:
        self._add("leader", leader)

    def wait(self, name: str, nth: int = 1) -> object:
        """The value of the nth call of `name`."""

        def calls() -> list[object]:
            return [value for heard, value in self.heard if heard == name]

        with self.changed:
            assert self.changed.wait_for(lambda: len(calls()) >= nth, WAIT_S), f"no {name} #{nth} in {self.heard}"
            return calls()[nth - 1]

    def grants(self) -> list[LeadershipGrant]:
        with self.changed:
            return [value[0] for name, value in self.heard if name == "granted" and isinstance(value, tuple)]

    def count(self, name: str) -> int:
        with self.changed:
            return sum(heard == name for heard, _ in self.heard)


class Candidate:
    """A coordinator reduced to its elector and an open port."""

    def __init__(self, connector: Connector, cluster: str, name: str, address: str, listener: Recorder) -> None:
        self.listener = listener
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = address or f"127.0.0.1:{self.server.getsockname()[1]}"
        me = LeaderRecord(coordinator_id=name, address=self.address, pid=1)
        self.broken = threading.Event()  # the process would have been ended
        self.elector = Elector(connector, cluster, me, self.listener, on_broken=self.broken.set)

    def start(self) -> Candidate:
        self.elector.start()
        assert self.elector.wait_connected(round(WAIT_S * 1000))
        self.listener.wait("leader")
        return self

    def lead(self) -> Candidate:
        self.start()
        self.listener.wait("granted")
        return self

    def grant(self) -> LeadershipGrant:
        held = self.elector.grant
        assert held is not None
        return held

    def session(self) -> Session:
        found = self.elector._session
        assert found is not None
        return found

    def close_port(self) -> None:
        self.server.close()


@dataclass
class World:
    """A ZooKeeper of either kind. expire: ends a session on the server; cut: breaks its connection for a moment."""

    connect: Callable[[Protection], Connector]
    protection: Protection
    cluster: str
    expire: Callable[[Session], None]
    cut: Callable[[Session], None]
    candidates: list[Candidate] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)

    @property
    def connector(self) -> Connector:
        return self.connect(self.protection)

    def candidate(
        self, name: str, address: str = "", listener: Recorder | None = None, connector: Connector | None = None
    ) -> Candidate:
        made = Candidate(connector or self.connector, self.cluster, name, address, listener or Recorder())
        self.candidates.append(made)
        return made

    def open(self, protection: Protection | None = None) -> Session:
        session = self.connect(protection or self.protection).open()
        self.sessions.append(session)
        assert session.wait_connected(round(WAIT_S * 1000))
        return session

    def close(self) -> None:
        for candidate in self.candidates:
            candidate.elector.stop()
            candidate.close_port()
        for session in self.sessions:
            session.close()


def _expire_for_real(session: Session) -> None:
    """Ends the session from a second connection under the same id, as only its password allows.

    Its own client takes it back at once, perhaps before it has ended; then the next try gets the same session again.
    """
    assert isinstance(session, ZooKeeperSession)
    client, tls = session._client, transport(session._tls)
    own = client._session_id, client._session_passwd
    for _ in range(_TRIES):
        twin = KazooClient(hosts=session._hosts, client_id=own, **tls)
        twin.start()
        found = twin.client_id
        twin.stop()
        twin.close()
        if found is None or found[0] != own[0]:
            return
    raise AssertionError(f"session {session.id} was taken back {_TRIES} times")


def _cut_for_real(session: Session) -> None:
    assert isinstance(session, ZooKeeperSession)
    socket.socket.shutdown(session._client._connection._socket, socket.SHUT_RDWR)


KINDS = ["embedded", pytest.param("zookeeper", marks=pytest.mark.integration)]
TLS = pytest.param("zookeeper with TLS", marks=pytest.mark.integration)
"""For the few tests to which it may make a difference: parametrize("world", [*KINDS, TLS], indirect=True)."""
SECRETS = [pytest.param("", id="open"), pytest.param("a secret of this test", id="protected")]


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Of the server below and of its clients."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_zookeeper(tmp_path_factory: pytest.TempPathFactory, tls: TlsFiles) -> Iterator[ZooKeeperServer]:
    """As `zookeeper`, but with TLS. Never stop this one."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("tls-zookeeper"), tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(params=SECRETS)
def protection(request: pytest.FixtureRequest, cluster_name: str) -> Protection:
    """With and without a secret."""
    return Protection(cluster_name, request.param)


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, cluster_name: str, protection: Protection) -> Iterator[World]:
    """Each test runs against the twin and against the real one."""
    if request.param == "embedded":
        server = EmbeddedZooKeeper()

        def cut(session: Session) -> None:
            server.suspend(session)
            server.resume(session)

        made = World(server.connector, protection, cluster_name, lambda session: server.expire(session.id), cut)
    else:
        has_tls = request.param != "zookeeper"
        address = request.getfixturevalue("tls_zookeeper" if has_tls else "zookeeper").address
        tls = request.getfixturevalue("tls") if has_tls else None

        def connect(protection: Protection) -> Connector:
            return zookeeper_connector(address, SESSION_MS, protection, tls)

        made = World(connect, protection, cluster_name, _expire_for_real, _cut_for_real)
    try:
        yield made
    finally:
        made.close()
