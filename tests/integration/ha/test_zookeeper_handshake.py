"""A server that takes a connection and never answers in it, as one does that is just starting."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_common.tls import TlsFiles
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.session import SessionState
from lockgate_ha.zookeeper import connector

from tests.certificates import make_certificates

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

SESSION_S = 8.0
WAIT_S = 120.0


@pytest.fixture(params=["plain text", "TLS"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> TlsFiles | None:
    return make_certificates(tmp_path) if request.param == "TLS" else None


@pytest.fixture
def server(tmp_path: Path, tls: TlsFiles | None) -> Iterator[ZooKeeperServer]:
    made = ZooKeeperServer(tmp_path / "zookeeper", tls=tls)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_a_handshake_without_an_answer_is_given_up_long_before_the_session_is_over(
    server: ZooKeeperServer, tls: TlsFiles | None
) -> None:
    """Or else the server, which counts from its own start, would have ended the session by the next attempt."""
    heard: list[SessionState] = []
    is_back = threading.Event()

    def listen(state: SessionState, _session: str) -> None:
        heard.append(state)
        if heard.count(SessionState.CONNECTED) == 2:
            is_back.set()

    session = connector(server.address, round(SESSION_S * 1000), tls=tls).open(listen)
    try:
        assert session.wait_connected(round(WAIT_S * 1000))
        before = session.id
        server.kill()
        with socket.create_server((server.bind, server.port)) as mute:
            mute.settimeout(WAIT_S)
            first, _ = mute.accept()
            mute.settimeout(0.9 * SESSION_S)  # after a quarter of it, where all is well
            second, _ = mute.accept()
        with first, second:
            server.start()
            assert is_back.wait(WAIT_S)
        assert session.id == before
        assert heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    finally:
        session.close()
