"""The HTTP server: what it refuses, what it bounds, TLS, and its end. Over real sockets."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.http import connection as connection_module
from lockgate_common.http import shield
from lockgate_common.http.callers import HttpCallers
from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.http.server import HttpServer
from lockgate_common.security import Credentials, SecurityError, TlsFiles
from lockgate_common.tls import client_context

from tests.certificates import make_certificates
from tests.http_client import PATIENCE_S, ask, raw

SECRET = "a secret of sixteen characters"
JSON = {"Content-Type": "application/json"}


class Served:
    """A server and what its app was asked."""

    def __init__(self, credentials: Credentials, trusted: str = "nobody") -> None:
        def may_read(scope: Any) -> bool:
            return shield.header(scope, "origin") == trusted

        self.asked: list[str] = []
        self.streaming, self.left = threading.Event(), threading.Event()
        self.server = HttpServer(self.app, "127.0.0.1:0", credentials, "coordinator.dashboard", may_read)
        self.callers = HttpCallers(credentials, is_local=True)
        self.server.start()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Echoes; /who names the caller, /stream never ends, /fault raises.

        After /brief the next head has to come soon.
        """
        self.asked.append(f"{scope['method']} {scope['path']}")
        body = (await receive())["body"]
        if scope["path"] == "/brief":
            connection_module._HEAD_S = 0.2
        if scope["path"] == "/fault":
            raise RuntimeError("of the app")
        if scope["path"] == "/refused":
            raise HttpRefusal(409, "not now")
        if scope["path"] == "/who":
            caller = self.callers.caller(scope)
            body = json.dumps({"owner": caller.is_owner, "token": str(caller.token or "")}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"begun\n", "more_body": True})
            self.streaming.set()
            while (await receive())["type"] != "http.disconnect":
                pass
        if scope["path"] == "/much":
            try:
                for _ in range(1_000):
                    await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
            except TimeoutError:
                self.left.set()
                raise
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(Credentials(SECRET), "http://127.0.0.1:7")
    yield served
    served.server.stop()


def test_an_answer_forbids_framing_sniffing_and_caching(served: Served) -> None:
    answer = ask(served.server.address)
    assert answer.status == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert not {"server", "access-control-allow-origin"} & set(answer.headers)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7080", "127.0.0.1.evil.example", "", "[::2]"])
def test_another_host_name_is_refused(served: Served, host: str) -> None:
    answer = ask(served.server.address, headers={"Host": host})
    assert (answer.status, served.asked) == (421, [])
    assert "this server is not" in answer.error


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8", "[::1]:8", "127.0.0.1"])
def test_names_of_this_machine_are_its_own_behind_any_forwarded_port(served: Served, host: str) -> None:
    assert ask(served.server.address, headers={"Host": host}).status == 200


def test_a_change_needs_json(served: Served) -> None:
    for kind in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        assert ask(served.server.address, "/", "POST", kind, b"{}").status == 415
    assert served.asked == []
    assert ask(served.server.address, "/", "POST", JSON, b"{}").body == b"{}"


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:7", "null", "https://127.0.0.1"])
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH"])
def test_a_page_of_another_site_changes_nothing(served: Served, origin: str, method: str) -> None:
    answer = ask(served.server.address, "/", method, {**JSON, "Origin": origin}, b"{}")
    assert (answer.status, served.asked) == (403, [])


def test_its_own_pages_may_change_something(served: Served) -> None:
    own = {**JSON, "Origin": f"http://{served.server.address}"}
    assert ask(served.server.address, "/", "POST", own, b"{}").status == 200


def test_a_trusted_page_may_read(served: Served) -> None:
    trusted = {"Origin": "http://127.0.0.1:7"}
    answer = ask(served.server.address, headers=trusted)
    assert answer.headers["access-control-allow-origin"] == "http://127.0.0.1:7"
    assert ask(served.server.address, "/", "OPTIONS", trusted).headers["access-control-allow-methods"] == "GET"
    for method in ("GET", "OPTIONS"):
        stranger = ask(served.server.address, "/", method, {"Origin": "http://evil.example"})
        assert not [name for name in stranger.headers if name.startswith("access-control")]


def test_a_request_that_another_site_makes_is_refused(served: Served) -> None:
    foreign = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert ask(served.server.address, headers=foreign).status == 403
    assert ask(served.server.address, headers={**foreign, "Origin": "http://127.0.0.1:7"}).status == 200


@pytest.mark.parametrize("path", ["/", "/jobs/metrics", "/api", "/api/v1/events", "/metrics", "/metrics/"])
@pytest.mark.parametrize("mode", ["navigate", "no-cors", "cors", ""])
def test_another_site_without_an_origin_may_only_lead_to_a_page(served: Served, path: str, mode: str) -> None:
    """Images and requests without CORS have no `Origin`, and keep a connection each."""
    foreign = {"Sec-Fetch-Site": "cross-site", **({"Sec-Fetch-Mode": mode} if mode else {})}
    is_page = path in ("/", "/jobs/metrics")
    assert ask(served.server.address, path, headers=foreign).status == (200 if is_page and mode == "navigate" else 403)
    assert ask(served.server.address, path, headers={**foreign, "Sec-Fetch-Site": "same-origin"}).status == 200


def test_a_large_body_is_refused(served: Served) -> None:
    assert ask(served.server.address, "/", "POST", JSON, bytes(shield.MAX_BODY_BYTES)).status == 200
    assert ask(served.server.address, "/", "POST", JSON, bytes(shield.MAX_BODY_BYTES + 1)).status == 413


def test_large_headers_and_invalid_http_are_refused(served: Served) -> None:
    assert b"400" in raw(served.server.address, b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000).splitlines()[0]
    assert b"400" in raw(served.server.address, b"\x16\x03\x01\x00hello\r\n\r\n").splitlines()[0]
    assert served.asked == []


def test_a_slow_head_ends_the_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_HEAD_S", 0.2)
    assert raw(served.server.address) == b""
    assert raw(served.server.address, b"GET / HTTP/1.1\r\nHost: loc") == b""
    monkeypatch.setattr(connection_module, "_HEAD_S", PATIENCE_S)
    again = raw(served.server.address, b"GET /brief HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHo")
    assert again.startswith(b"HTTP/1.1 200")
    assert again.count(b"HTTP/1.1") == 1


def test_a_slow_body_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shield, "_BODY_S", 0.2)
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    assert raw(served.server.address, head, b"{").startswith(b"HTTP/1.1 408")


def test_a_client_that_does_not_read_is_left(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shield, "_SEND_S", 0.2)
    host, _, port = served.server.address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert served.left.wait(PATIENCE_S)


def test_connections_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_CONNECTIONS", 2)
    host, _, port = served.server.address.rpartition(":")
    kept = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(2)]
    for connection in kept:  # answered: the server has them
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    with pytest.raises(OSError, match=r"reset|closed"):
        raw(served.server.address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") or _raise_closed()
    for connection in kept:
        connection.close()


def _raise_closed() -> None:
    raise OSError("closed")


def test_a_fault_is_logged_and_not_shown(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(served.server.address, "/fault")
    assert (answer.status, answer.error) == (500, "internal error; see the log of this process")
    assert "of the app" in caplog.text
    assert ask(served.server.address, "/refused").error == "not now"


def test_stopping_ends_a_stream_in_order(served: Served) -> None:
    host, _, port = served.server.address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert served.streaming.wait(PATIENCE_S)
        served.server.stop()
        served.server.stop()
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.endswith(b"begun\n\r\n0\r\n\r\n")
    with pytest.raises(OSError, match="refused"):
        ask(served.server.address)


def test_a_server_stops_before_it_has_served() -> None:
    unused = HttpServer(Served.app, "127.0.0.1:0", Credentials(SECRET), "coordinator.dashboard")  # type: ignore[arg-type]
    unused.stop()
    for _ in range(5):
        Served(Credentials(SECRET)).server.stop()


def test_a_taken_port_is_one_sentence(served: Served) -> None:
    with pytest.raises(OSError, match=r"^cannot listen on 127.0.0.1:\d+: the port is taken .* coordinator\.dashboard$"):
        HttpServer(served.app, served.server.address, Credentials(SECRET), "coordinator.dashboard")


def test_beyond_loopback_it_needs_tls() -> None:
    with pytest.raises(SecurityError, match=r"reachable from other machines; set tls\.certificate"):
        HttpServer(Served.app, "0.0.0.0:0", Credentials(SECRET), "coordinator.dashboard")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_certificates(tmp_path_factory.mktemp("tls"), hosts=("localhost", "127.0.0.1", "*.example.org"))


def test_tls_answers_under_the_names_of_its_certificate(tls: TlsFiles) -> None:
    served = Served(Credentials(SECRET, tls))
    try:
        context = client_context(TlsFiles(authority=tls.authority))
        assert ask(served.server.address, context=context).status == 200
        named = {"Host": "one.example.org:7080"}
        assert ask(served.server.address, headers=named, context=context).status == 200
        assert ask(served.server.address, headers={"Host": "a.one.example.org"}, context=context).status == 421
        assert served.server.url.startswith("https://127.0.0.1:")
        with pytest.raises(OSError, match=r"reset|closed|disconnected|without response"):
            ask(served.server.address)
    finally:
        served.server.stop()


def test_a_renewed_certificate_is_shown_from_the_next_connection_on(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    served = Served(Credentials(SECRET, tls))
    try:
        before = _shown(served, tls)
        for path in (tls.certificate, tls.key):
            Path(path).unlink()
        make_certificates(tmp_path)
        after = _shown(served, tls)
        assert before != after
        assert after == ssl.PEM_cert_to_DER_cert(Path(tls.certificate).read_text(encoding="ascii"))
        Path(tls.key).write_text("half a key", encoding="ascii")
        assert _shown(served, tls) == after
    finally:
        served.server.stop()


def _shown(served: Served, tls: TlsFiles) -> bytes:
    host, _, port = served.server.address.rpartition(":")
    context = client_context(TlsFiles(authority=tls.authority))
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""


def test_mutual_tls_lets_only_certificates_of_the_authority_in(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path / "own")
    other = make_certificates(tmp_path / "other")
    mutual = TlsFiles(tls.certificate, tls.key, tls.authority, mutual=True)
    served = Served(Credentials(SECRET, mutual))
    try:
        assert ask(served.server.address, context=client_context(tls)).status == 200
        for shown in (TlsFiles(authority=tls.authority), TlsFiles(other.certificate, other.key, tls.authority)):
            with pytest.raises(OSError, match=r"certificate|alert|ca|reset|closed"):
                ask(served.server.address, context=client_context(shown))
    finally:
        served.server.stop()
    assert served.asked == ["GET /"]
