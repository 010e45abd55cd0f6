"""TLS that stops working while a process runs: what its log and its clients say."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lockgate_common.security import Credentials
from lockgate_common.tls import TlsFiles
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.zookeeper import connector
from lockgate_ha.zookeeper.session import ZooKeeperSession
from lockgate_proto.messages import JobGraph

from lockgate.client import Client, ClusterUnreachable, InvalidJob
from lockgate.client.deadline import Deadline
from tests.certificates import make_certificates
from tests.integration.ha.conftest import SESSION_MS, WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

SAID = "no connection to ZooKeeper: "


@pytest.fixture
def mine(tls: TlsFiles, tmp_path: Path) -> TlsFiles:
    """Copies that a test may replace."""
    return TlsFiles(*(shutil.copy(path, tmp_path) for path in (tls.certificate, tls.key, tls.authority)))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_certificates(tmp_path_factory.mktemp("other-certificates"), "other")


def cut(session: object) -> None:
    """As a restart of the server or a switch in between would."""
    assert isinstance(session, ZooKeeperSession)
    socket.socket.shutdown(session._client._connection._socket, socket.SHUT_RDWR)


def wait_until(is_so: Callable[[], bool], messages: list[str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, messages
        threading.Event().wait(0.02)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith(SAID)]


def wrong_authority(mine: TlsFiles, other: TlsFiles) -> None:
    shutil.copy(other.authority, mine.authority)


def wrong_certificate(mine: TlsFiles, other: TlsFiles) -> None:
    shutil.copy(other.certificate, mine.certificate)
    shutil.copy(other.key, mine.key)


@pytest.mark.parametrize(
    ("renew", "message"),
    [
        (wrong_authority, "has not signed (unable to get local issuer certificate); check zookeeper.authority"),
        (wrong_certificate, "it has to be of an authority that ZooKeeper trusts"),
    ],
)
def test_wrongly_renewed_files_are_named_once(
    tls_zookeeper: ZooKeeperServer,
    mine: TlsFiles,
    other: TlsFiles,
    caplog: pytest.LogCaptureFixture,
    renew: Callable[[TlsFiles, TlsFiles], None],
    message: str,
) -> None:
    session = connector(tls_zookeeper.address, SESSION_MS, tls=mine).open()
    try:
        assert session.wait_connected(round(WAIT_S * 1000))
        renew(mine, other)
        cut(session)
        wait_until(lambda: bool(said(caplog)), caplog.messages)
        assert f"{SAID}ZooKeeper at {tls_zookeeper.address} " in said(caplog)[0]
        assert message in said(caplog)[0]
    finally:
        session.close()
    assert len(said(caplog)) == 1


def test_a_server_restarted_without_tls_is_named(
    tls: TlsFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ZooKeeperServer(tmp_path / "data", tls=tls)
    server.start()
    session = connector(server.address, SESSION_MS, tls=tls).open()
    try:
        assert session.wait_connected(round(WAIT_S * 1000))
        server.stop()
        server = ZooKeeperServer(tmp_path / "data", port=server.port)
        server.start()
        wait_until(lambda: bool(said(caplog)), caplog.messages)
        assert said(caplog) == [
            f"{SAID}ZooKeeper at {server.address} does not speak TLS; check the port, or unset zookeeper.tls"
        ]
    finally:
        session.close()
        server.stop()


def test_a_leader_gives_its_clients_the_reason_until_the_outage_is_over(
    tls_zookeeper: ZooKeeperServer,
    mine: TlsFiles,
    tls: TlsFiles,
    other: TlsFiles,
    cluster_name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    credentials = Credentials(secret="a secret of this test", zookeeper=mine)
    coordinator = Coordinator(
        CoordinatorSettings(
            cluster=cluster_name,
            zookeeper=tls_zookeeper.address,
            storage=str(tmp_path / "storage"),
            bind="127.0.0.1:0",
            session_timeout_ms=SESSION_MS,
            credentials=credentials,
        )
    )
    try:
        coordinator.start()
        with Client((coordinator.address,), credentials=credentials, patience_ms=round(WAIT_S * 1000)) as client:
            wait_until(lambda: not client.jobs(), caplog.messages)
            wrong_authority(mine, other)
            cut(coordinator.elector._session)
            wait_until(lambda: bool(said(caplog)), caplog.messages)
            with monkeypatch.context() as patch:
                patch.setattr(Deadline, "expired", property(lambda _deadline: True))  # after one answer
                with pytest.raises(ClusterUnreachable, match=r"from the leader .*check zookeeper\.authority\)"):
                    client.submit("any", JobGraph(name="any"))
            shutil.copy(tls.authority, mine.authority)
            with pytest.raises(InvalidJob):  # it is read again
                client.submit("any", JobGraph(name="any"))
    finally:
        coordinator.stop()
    assert len(said(caplog)) == 1
