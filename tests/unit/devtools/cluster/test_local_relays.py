"""Relays between processes: a cut link passes nothing on, and what was written meanwhile arrives late."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from lockgate_devtools.cluster import ports, sockets
from lockgate_devtools.cluster.relays import Relays

pytestmark = pytest.mark.skipif(not sockets.is_known(), reason="the system does not say which process owns a socket")

HOST = ports.HOST
A_MOMENT_S = 0.2  # nothing may arrive meanwhile: too short a time passes the test, it never fails it
PATIENCE_S = 10.0


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Server:
    """Listens at a port behind a relay named "server"; whoever connects is named "client"."""

    def __init__(self) -> None:
        self.port, own = ports.choose(2)
        self.listener = socket.create_server((HOST, own))
        self.listener.settimeout(PATIENCE_S)
        self.relays = Relays(lambda ends: dict.fromkeys(ends, "client"))
        self.relays.add("server", self.port, own)
        self.own = own
        _until(self.is_reachable)

    def is_reachable(self) -> bool:
        return bool(sockets.listening(self.port))

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), PATIENCE_S)

    def accept(self) -> socket.socket:
        accepted = self.listener.accept()[0]
        accepted.settimeout(PATIENCE_S)
        return accepted


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.relays.close()
    made.listener.close()


def _is_silent(end: socket.socket) -> bool:
    end.settimeout(A_MOMENT_S)
    with contextlib.suppress(TimeoutError):
        return not end.recv(1)
    end.settimeout(PATIENCE_S)
    return True


def test_bytes_and_the_end_of_a_connection_pass_in_both_directions(server: Server) -> None:
    with server.connect() as client, server.accept() as accepted:
        client.sendall(b"question")
        assert accepted.recv(100) == b"question"
        accepted.sendall(b"answer" * 50_000)
        accepted.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert answer == b"answer" * 50_000
        assert server.relays.servers_of("client") == {"server"}
    _until(lambda: not server.relays.servers_of("client"))


@pytest.mark.parametrize("cut_sender", ["client", "server"])
def test_a_link_that_is_cut_in_one_direction_passes_the_other_one(server: Server, cut_sender: str) -> None:
    with server.connect() as client, server.accept() as accepted:
        ends = {"client": client, "server": accepted}
        receiver = "server" if cut_sender == "client" else "client"
        server.relays.cut([(cut_sender, receiver)])
        ends[cut_sender].sendall(b"late")
        ends[cut_sender].shutdown(socket.SHUT_WR)
        assert _is_silent(ends[receiver]), "not even the end of the connection arrives"
        ends[receiver].sendall(b"at once")
        assert ends[cut_sender].recv(100) == b"at once"
        server.relays.heal()
        assert ends[receiver].recv(100) == b"late"
        assert ends[receiver].recv(100) == b""


def test_no_connection_is_made_over_a_link_that_is_cut_in_either_direction(server: Server) -> None:
    server.relays.cut([("server", "client")])
    with server.connect() as client:
        client.sendall(b"hello")
        server.listener.settimeout(A_MOMENT_S)
        with pytest.raises(TimeoutError):
            server.accept()
        server.listener.settimeout(PATIENCE_S)
        server.relays.heal()
        with server.accept() as accepted:
            assert accepted.recv(100) == b"hello"


def test_other_links_stay_whole(server: Server) -> None:
    server.relays.cut([("somebody", "server"), ("server", "somebody")])
    with server.connect() as client, server.accept() as accepted:
        client.sendall(b"hello")
        assert accepted.recv(100) == b"hello"


def test_the_relay_of_a_server_that_is_gone_refuses_connections(server: Server) -> None:
    """Otherwise a dead leader would look like one that does not answer."""
    with server.connect() as client, server.accept() as accepted:
        server.listener.close()
        accepted.close()
        assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            server.connect()
    server.listener = socket.create_server((HOST, server.own))
    server.listener.settimeout(PATIENCE_S)
    _until(server.is_reachable)
    with server.connect() as client, server.accept() as accepted:
        client.sendall(b"again")
        assert accepted.recv(100) == b"again"
