"""probe_tcp: a port counts as closed only when it refuses, and one that ends a connection at once is asked again."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from lockgate_common import ports
from lockgate_common.addresses import ProbeAnswer
from lockgate_common.ports import probe_tcp


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


@contextlib.contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


def test_a_closed_port_refuses(listener: socket.socket) -> None:
    address = _address(listener)
    listener.close()
    assert probe_tcp(address) is ProbeAnswer.REFUSED


def test_a_frozen_process_accepts(listener: socket.socket) -> None:
    assert probe_tcp(_address(listener)) is ProbeAnswer.ACCEPTED


def test_a_server_that_speaks_first_accepts(listener: socket.socket) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"settings")
            with contextlib.suppress(ConnectionError):
                connection.recv(1)  # until the probe has ended

    with _beside(serve):
        assert probe_tcp(_address(listener)) is ProbeAnswer.ACCEPTED


def test_a_process_that_dies_refuses_though_its_port_still_accepts(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are gone, which is why it is probed; the port closes a moment later."""
    monkeypatch.setattr(ports, "_ENDS_WITHIN_S", 30.0)  # however late the thread is

    def die() -> None:
        select.select([listener], [], [])  # the probe is connected, or about to be
        listener.close()

    with _beside(die):
        assert probe_tcp(_address(listener)) is ProbeAnswer.REFUSED


def test_a_connection_that_is_reset_while_it_is_made_is_tried_again(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, resets = socket.create_connection, [ConnectionResetError(), ConnectionResetError()]

    def make(address: tuple[str, int], timeout_s: float) -> socket.socket:
        if resets:
            raise resets.pop()
        return made(address, timeout_s)

    monkeypatch.setattr(socket, "create_connection", make)
    assert probe_tcp(_address(listener)) is ProbeAnswer.ACCEPTED
    assert not resets


def test_a_server_that_accepted_once_and_then_is_silent_has_accepted(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [socket.create_connection(listener.getsockname())]
    listener.accept()[0].close()

    def make(_address: tuple[str, int], _timeout_s: float) -> socket.socket:
        if made:
            return made.pop()
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", make)
    assert probe_tcp(_address(listener)) is ProbeAnswer.ACCEPTED
    assert not made


def test_a_live_server_that_ends_every_connection_accepts(listener: socket.socket) -> None:
    def turn_away() -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    with _beside(turn_away):
        assert probe_tcp(_address(listener)) is ProbeAnswer.ACCEPTED
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("address", ["no port", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_is_none_answers_nothing(address: str) -> None:
    assert probe_tcp(address) is ProbeAnswer.NONE
