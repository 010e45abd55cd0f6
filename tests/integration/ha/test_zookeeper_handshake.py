"""A server that takes a connection and never answers in it, as one does that is just starting."""

from __future__ import annotations

import socket
import threading

import pytest
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.session import SessionState
from lockgate_ha.zookeeper import connector

pytestmark = pytest.mark.integration

SESSION_S = 8.0
WAIT_S = 120.0


def test_a_handshake_without_an_answer_is_given_up_long_before_the_session_is_over(
    own_zookeeper: ZooKeeperServer,
) -> None:
    """Or else the server, which counts from its own start, would have ended the session by the next attempt."""
    heard: list[SessionState] = []
    is_back = threading.Event()

    def listen(state: SessionState, _session: str) -> None:
        heard.append(state)
        if heard.count(SessionState.CONNECTED) == 2:
            is_back.set()

    session = connector(own_zookeeper.address, round(SESSION_S * 1000)).open(listen)
    try:
        assert session.wait_connected(round(WAIT_S * 1000))
        before = session.id
        own_zookeeper.kill()
        with socket.create_server((own_zookeeper.bind, own_zookeeper.port)) as mute:
            mute.settimeout(WAIT_S)
            first, _ = mute.accept()
            mute.settimeout(0.9 * SESSION_S)  # after a quarter of it, where all is well
            second, _ = mute.accept()
        with first, second:
            own_zookeeper.start()
            assert is_back.wait(WAIT_S)
        assert session.id == before
        assert heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    finally:
        session.close()
