"""Kazoo's connections over TLS, at a server that is none of ZooKeeper's."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_common.tls import TlsFiles
from lockgate_ha.zookeeper.reasons import trouble
from lockgate_ha.zookeeper.tls import transport

from tests.certificates import make_certificates

WAIT_S = 60.0


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    return make_certificates(tmp_path)


@pytest.fixture
def server(tls: TlsFiles) -> Iterator[tuple[str, int]]:
    """Sends eight bytes to whoever connects, in one record."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    is_over = threading.Event()

    def serve() -> None:
        try:
            with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
                connection.sendall(b"12345678")
                is_over.wait()
        except OSError:
            return  # the client did not want to, or the test is over

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()
        is_over.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)


def test_data_that_tls_has_already_read_is_seen(tls: TlsFiles, server: tuple[str, int]) -> None:
    """Or else the second of two answers in one record would wait for the next ping."""
    handler = transport(tls)["handler"]
    with handler.create_connection(server, timeout=WAIT_S, hostname="127.0.0.1") as connection:
        assert connection.recv(4) == b"1234"
        assert handler.select([connection], [], [], 0) == ([connection], [], [])
        assert connection.recv(4) == b"5678"
        assert handler.select([connection], [], [], 0) == ([], [], [])


def test_the_host_is_checked_by_the_name_that_was_configured(tls: TlsFiles, server: tuple[str, int]) -> None:
    with pytest.raises(OSError, match="Hostname mismatch"):
        transport(tls)["handler"].create_connection(server, timeout=WAIT_S, hostname="zk1.example")


def test_files_that_break_later_are_an_error_that_kazoo_tries_again(tls: TlsFiles, server: tuple[str, int]) -> None:
    handler = transport(replace(tls, key="/nowhere"))["handler"]
    with pytest.raises(OSError, match="cannot read the TLS file '/nowhere'"):
        handler.create_connection(server, timeout=WAIT_S, hostname="127.0.0.1")
    assert "cannot read the TLS file" in trouble(f"127.0.0.1:{server[1]}", replace(tls, key="/nowhere"))
