"""ZooKeeper with TLS: who gets in, what those hear who do not, and three servers that talk TLS among themselves."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from lockgate_common.tls import SecurityError, TlsFiles, client_context
from lockgate_common.zookeeper_wait import NoZooKeeper
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_devtools.zookeeper.server import ZooKeeperEnsemble, ZooKeeperServer
from lockgate_ha import steps
from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.paths import Paths
from lockgate_ha.protection import Protection
from lockgate_ha.session import SessionState
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Create
from lockgate_ha.zookeeper import connect, connector
from lockgate_ha.zookeeper.session import ZooKeeperSession

from lockgate.cli import cli
from lockgate.client import Client, ClusterUnreachable, find_cluster, through_zookeeper
from lockgate.settings import load_settings
from tests.certificates import make_certificates
from tests.integration.ha.conftest import SESSION_MS, WAIT_S, World

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

NO_SESSION_MS = 300  # it is refused at once, so that waiting longer would show nothing more


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Certificates of another authority."""
    return make_certificates(tmp_path_factory.mktemp("other-certificates"), "other")


@pytest.fixture
def foreign(tls: TlsFiles, other: TlsFiles) -> dict[str, TlsFiles | None]:
    """What clients may come with that are not let in."""
    return {
        "plain text": None,
        "no certificate": TlsFiles(authority=tls.authority),
        "a certificate of another authority": replace(other, authority=tls.authority),
        "another authority": replace(tls, authority=other.authority),
    }


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("plain text", "speaks TLS only; set zookeeper.tls"),
        ("no certificate", "requires a certificate; set zookeeper.certificate and zookeeper.key"),
        ("a certificate of another authority", r"does not accept the certificate .*/other\.pem "),
        ("another authority", r"has a certificate that .*/ca\.pem has not signed"),
    ],
)
def test_a_client_without_a_certificate_of_the_authority_gets_no_session(
    tls_zookeeper: ZooKeeperServer, foreign: dict[str, TlsFiles | None], kind: str, message: str
) -> None:
    with pytest.raises(StoreUnavailable, match=rf"^ZooKeeper at {tls_zookeeper.address} {message}"):
        connect(tls_zookeeper.address, timeout_ms=NO_SESSION_MS, tls=foreign[kind])


def test_a_server_without_tls_is_named(zookeeper: ZooKeeperServer, tls: TlsFiles) -> None:
    with pytest.raises(
        StoreUnavailable, match=rf"^ZooKeeper at {zookeeper.address} does not speak TLS; check the port"
    ):
        connect(zookeeper.address, timeout_ms=NO_SESSION_MS, tls=tls)


def test_a_stopped_server_is_not_a_tls_problem(tls: TlsFiles) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(StoreUnavailable, match=r"^ZooKeeper does not answer at .*; start `lockgate zookeeper`"):
            connect(f"127.0.0.1:{taken.getsockname()[1]}", timeout_ms=NO_SESSION_MS, tls=tls)


def test_files_that_are_missing_are_named_before_anything_is_connected(tls: TlsFiles) -> None:
    with pytest.raises(SecurityError, match=r"cannot read the TLS file '/nowhere/ca\.pem': No such file"):
        connector("127.0.0.1:1", tls=replace(tls, authority="/nowhere/ca.pem"))


def test_the_server_of_another_host_gets_no_word(tls: TlsFiles) -> None:
    """Its certificate is of the authority, but names 127.0.0.1 and not the address at which it listens."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.2", 0)) as listening:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)

        def serve() -> None:
            while True:
                try:
                    connection = context.wrap_socket(listening.accept()[0], server_side=True)
                    heard.append(connection.recv(1))
                    connection.close()
                except ssl.SSLError:
                    continue  # it was hung up
                except OSError:
                    return  # the test is over

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.2:{listening.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match=rf"^ZooKeeper at {address} has a certificate of another host"):
            connect(address, timeout_ms=NO_SESSION_MS, tls=tls)
        listening.shutdown(socket.SHUT_RDWR)
    assert b"".join(heard) == b""


def test_the_key_is_private_and_in_no_command_line(tls_zookeeper: ZooKeeperServer, tls: TlsFiles) -> None:
    key = Path(tls.key).read_text().splitlines()[1]
    holding = [
        path for path in tls_zookeeper.data_dir.rglob("*") if path.is_file() and key in path.read_text(errors="replace")
    ]
    assert [path.stat().st_mode & 0o777 for path in holding] == [0o600]
    assert holding[0].parent.stat().st_mode & 0o777 == 0o700
    assert key not in Path(f"/proc/{tls_zookeeper.pid}/cmdline").read_text()


def test_a_session_takes_renewed_files_and_outlives_broken_ones(
    tls_zookeeper: ZooKeeperServer, tls: TlsFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = TlsFiles(*(shutil.copy(path, tmp_path) for path in (tls.certificate, tls.key, tls.authority)))
    states: list[SessionState] = []
    changed = threading.Condition()

    def listen(state: SessionState, _session: str) -> None:
        with changed:
            states.append(state)
            changed.notify_all()

    session = connector(tls_zookeeper.address, SESSION_MS, tls=mine).open(listen)
    assert isinstance(session, ZooKeeperSession)
    try:
        assert session.wait_connected(round(WAIT_S * 1000))
        before = session.id
        Path(mine.key).write_text("half of it")
        socket.socket.shutdown(session._client._connection._socket, socket.SHUT_RDWR)
        deadline = time.monotonic() + WAIT_S
        while not any("are not a certificate and its key" in text for text in caplog.messages):
            assert time.monotonic() < deadline, caplog.messages
            threading.Event().wait(0.01)
        shutil.copy(tls.key, mine.key)
        with changed:
            assert changed.wait_for(lambda: states.count(SessionState.CONNECTED) == 2, WAIT_S)
        assert session.id == before
        assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    finally:
        session.close()


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, tls_zookeeper: ZooKeeperServer, tls: TlsFiles) -> Callable[..., str]:
    """A settings file; `changes` are of the files."""

    def write(**changes: str) -> str:
        files = replace(tls, **changes)
        secret = tmp_path / "secret"
        secret.write_text("the secret of this cluster")
        secret.chmod(0o600)
        path = tmp_path / "settings.toml"
        path.write_text(
            f"[zookeeper]\nhosts = '{tls_zookeeper.address}'\ntls = true\ncertificate = '{files.certificate}'\n"
            f"key = '{files.key}'\nauthority = '{files.authority}'\n[security]\nsecret_file = '{secret}'\n"
        )
        return str(path)

    return write


def test_a_cluster_is_protected_over_tls(
    tls_zookeeper: ZooKeeperServer, tls: TlsFiles, config: Callable[..., str], cluster_name: str
) -> None:
    session = connect(tls_zookeeper.address, tls=tls)
    try:
        steps.prepare(session, Paths(cluster_name))
    finally:
        session.close()
    words = ["zookeeper", "protect", "--cluster-name", cluster_name, "--config", config()]
    answer = CliRunner().invoke(cli, words, standalone_mode=False)
    assert answer.exception is None
    assert f"cluster {cluster_name}: " in answer.output
    own = connect(tls_zookeeper.address, protection=Protection(cluster_name, "the secret of this cluster"), tls=tls)
    try:
        steps.check_mark(own, Paths(cluster_name))
    finally:
        own.close()


def test_health_asks_over_tls(
    tls_zookeeper: ZooKeeperServer, config: Callable[..., str], other: TlsFiles, zookeeper: ZooKeeperServer
) -> None:
    def ask(address: str, *words: str) -> str:
        return CliRunner().invoke(cli, ["health", address, "--zookeeper", *words], standalone_mode=False).output

    address = tls_zookeeper.address
    assert ask(address, "--config", config()) == f"{address} is ready\n"
    assert "is not ready: ZooKeeper" in (said := ask(address, "--config", config(authority=other.authority)))
    assert "has not signed" in said
    assert "speaks TLS only" in ask(address)
    assert "does not speak TLS" in ask(zookeeper.address, "--config", config())


@pytest.fixture
def settings(config: Callable[..., str], cluster_name: str, tmp_path: Path) -> CoordinatorSettings:
    """Of a coordinator, as its command reads them."""
    given = {
        "cluster": {"name": cluster_name},
        "storage": {"directory": str(tmp_path / "storage")},
        "coordinator": {"bind": "127.0.0.1:0"},
    }
    return load_settings(config(), given).coordinator_settings()


def test_a_client_finds_its_coordinator_over_tls(
    settings: CoordinatorSettings, config: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = find_cluster(zookeeper=settings.zookeeper, config=config(), name=settings.cluster)
    coordinator = Coordinator(settings)
    try:
        coordinator.start()
        with Client.connect(target) as client:
            assert client.leader().address == coordinator.address
        monkeypatch.setattr(through_zookeeper, "FIRST_ANSWER_S", NO_SESSION_MS / 1000)
        plain = replace(target, credentials=replace(target.credentials, zookeeper=None))
        with (
            Client.connect(plain, patience_ms=NO_SESSION_MS) as client,
            pytest.raises(ClusterUnreachable, match="speaks TLS only"),
        ):
            client.leader()
    finally:
        coordinator.stop()


def test_a_coordinator_without_tls_ends_with_the_reason(settings: CoordinatorSettings) -> None:
    plain = replace(settings.credentials, zookeeper=None)
    coordinator = Coordinator(replace(settings, credentials=plain, connect_timeout_ms=NO_SESSION_MS))
    try:
        with pytest.raises(NoZooKeeper, match=rf"^ZooKeeper at {settings.zookeeper} speaks TLS only"):
            coordinator.start()
    finally:
        coordinator.stop()


# -- three servers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def ensemble(tmp_path: Path, tls: TlsFiles) -> Iterator[ZooKeeperEnsemble]:
    made = ZooKeeperEnsemble(tmp_path, 3, tls=tls)
    made.start(round(WAIT_S * 1000))
    try:
        yield made
    finally:
        made.stop()


def test_three_servers_with_tls_elect_and_outlive_a_member(
    ensemble: ZooKeeperEnsemble, tls: TlsFiles, other: TlsFiles, cluster_name: str
) -> None:
    world = World(
        lambda protection: connector(ensemble.address, SESSION_MS, protection, tls),
        Protection(cluster_name, "a secret of this test"),
        cluster_name,
        lambda _session: None,
        lambda _session: None,
    )
    try:
        a, b = world.candidate("a").lead(), world.candidate("b").start()
        session = a.session()
        assert isinstance(session, ZooKeeperSession)
        port = session._client._connection._socket.getpeername()[1]
        member = next(server for server in ensemble.servers if server.port == port)
        member.kill()
        a.listener.wait("resumed")
        SessionStore(cluster_name, session).commit(a.grant(), [Create(f"{Paths(cluster_name).jobs}/j")])
        a.elector.stop(release=True)
        b.listener.wait("granted")
        member.start(round(WAIT_S * 1000))  # it joins the others again
        assert_peers_speak_tls_only(ensemble, tls, other)
        with pytest.raises(StoreUnavailable, match="speaks TLS only"):
            connect(ensemble.address, timeout_ms=NO_SESSION_MS)
    finally:
        world.close()


def assert_peers_speak_tls_only(ensemble: ZooKeeperEnsemble, tls: TlsFiles, other: TlsFiles) -> None:
    """At the ports among servers, where the authority counts and not the host that connects."""
    for member in ensemble.servers[0]._members:
        assert shown(member.election_port, tls, source="127.0.0.2", for_s=1.0) is None
        assert "ALERT" in (shown(member.election_port, replace(other, authority=tls.authority)) or "")
        assert "ALERT" in (shown(member.election_port, TlsFiles(authority=tls.authority)) or "")


def shown(port: int, files: TlsFiles, source: str = "127.0.0.1", for_s: float = WAIT_S) -> str | None:
    """How a server ends a TLS connection; None when it still waits after so long for what comes in it."""
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_S, (source, 0)) as plain,
        client_context(files).wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        secured.settimeout(for_s)
        try:
            return f"it sent {secured.recv(1)!r}"
        except TimeoutError:
            return None
        except ssl.SSLError as error:
            return error.reason
