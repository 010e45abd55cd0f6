"""Our servers cut off a caller that only connects; one that has sent something may be silent."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from lockgate_common.security import Credentials
from lockgate_proto.rpc import SERVER_OPTIONS

from tests.certificates import make_certificates

pytestmark = pytest.mark.integration

LIMIT_S = 60.0  # where 10 s are set, and 120 s are grpcio's default
BEGINNINGS = (b"", b"PRI * HTTP/2.0\r\n", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n")


@contextlib.contextmanager
def served(credentials: Credentials) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), options=SERVER_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    address = f"127.0.0.1:{credentials.bind(server, '127.0.0.1:0')}"
    server.start()
    yield address
    server.stop(None).wait()


def open_s(connection: socket.socket, started_s: float) -> float:
    """How long until the server closed it. Raises TimeoutError when it does not."""
    connection.settimeout(max(started_s + LIMIT_S - time.monotonic(), 0.1))
    with contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return time.monotonic() - started_s


def test_a_silent_stranger_is_cut_off_and_an_idle_client_is_not(tmp_path: Path) -> None:
    """With and without TLS, at the same time: it takes as long as the limit."""
    protections = (Credentials("s" * 32), Credentials("s" * 32, make_certificates(tmp_path)))
    with ThreadPoolExecutor(len(protections)) as pool:
        for cut_off in [pool.submit(_cut_off, credentials) for credentials in protections]:
            cut_off.result()


def _cut_off(credentials: Credentials) -> None:
    with served(credentials) as address, credentials.channel(address) as channel, contextlib.ExitStack() as stack:
        states: list[grpc.ChannelConnectivity] = []
        stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
        stub.Check(request, timeout=LIMIT_S, wait_for_ready=True)
        channel.subscribe(states.append)
        host, _, port = address.rpartition(":")
        started_s = time.monotonic()
        strangers = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in BEGINNINGS]
        for stranger, beginning in zip(strangers, BEGINNINGS, strict=True):
            stranger.sendall(beginning)
        assert all(open_s(stranger, started_s) < LIMIT_S for stranger in strangers)
        assert time.monotonic() - started_s > 5  # a slow link has time for its handshake
        stub.Check(request, timeout=LIMIT_S)
        assert set(states) <= {grpc.ChannelConnectivity.READY}  # it never had to connect again
