"""Who calls by HTTP: tokens, cookies, and the user of a socket."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.http import socket_owner
from lockgate_common.http.callers import HttpCallers
from lockgate_common.http.login_cookie import LoginCookie
from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.http.shield import SOCKET
from lockgate_common.http.socket_owner import is_own_user, owner_uid
from lockgate_common.security import Credentials
from lockgate_common.token_book import issue

from tests import nobody
from tests.unit.common.test_http_server import SECRET, Served, ask

_GET = """
import http.client, sys
connection = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))
connection.request('GET', '/who', headers=dict([sys.argv[2].split(': ', 1)]) if sys.argv[2] else {})
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""
_GONE = """
import socket, sys
connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
connection.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n')
print(*connection.getsockname())
if sys.argv[2] == 'half': connection.shutdown(socket.SHUT_WR); sys.stdin.read()
"""


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(Credentials(SECRET))
    yield served
    served.server.stop()


def test_the_own_user_is_the_owner(served: Served) -> None:
    assert ask(served.server.address, "/who").json == {"owner": True, "token": ""}


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_proxied_requests_have_no_owner(served: Served, name: str) -> None:
    answer = ask(served.server.address, "/who", headers={name: "1.2.3.4"})
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_credentials_take_precedence_over_the_user(served: Served, tmp_path: Path) -> None:
    token = issue(tmp_path / "tokens.json", SECRET, "reader", ("read",), 0)
    shown = ask(served.server.address, "/who", headers={"Authorization": f"Bearer {token}"})
    assert shown.json == {"owner": False, "token": str(token)}
    for wrong in ("Bearer nonsense", "Basic abc", "Bearer ", f"Bearer {SECRET}x"):
        assert ask(served.server.address, "/who", headers={"Authorization": wrong}).status == 401
    assert ask(served.server.address, "/who", headers={"Authorization": f"Bearer {SECRET}"}).json["owner"]


def test_a_jwt_is_refused_without_tls(served: Served) -> None:
    answer = ask(served.server.address, "/who", headers={"Authorization": "Bearer eyJh.eyJh.abc"})
    assert (answer.status, "JWT" in answer.error) == (401, True)


@nobody.needs_root
def test_another_user_is_unknown_without_a_token(served: Served, tmp_path: Path) -> None:
    port = served.server.address.rpartition(":")[2]
    refused = nobody.run(sys.executable, "-c", _GET, port, "")
    assert refused.stdout.startswith("401 "), refused.stderr
    assert "token" in refused.stdout
    token = issue(tmp_path / "tokens.json", SECRET, "reader", ("read",), 0)
    assert nobody.run(sys.executable, "-c", _GET, port, f"Authorization: Bearer {token}").stdout.startswith("200 ")


@nobody.needs_root
@pytest.mark.parametrize("end", ["half", "whole"])
def test_a_closing_socket_has_no_owner(end: str) -> None:
    """The kernel lists it as one of root."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        me: Any = server.getsockname()
        closed = nobody.run(sys.executable, "-c", _GONE, str(me[1]), end, input="")
        host, port = closed.stdout.split()
        connection, _ = server.accept()
        with connection:
            assert owner_uid((host, int(port)), me) is None
            assert not is_own_user(connection)


def test_root_is_its_own_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubectl port-forward` connects as root, whoever asks for it."""
    monkeypatch.setattr(socket_owner, "owner_uid", lambda _peer, _me: 0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as accepted,
    ):
        for own, expected in ((0, True), (10_001, False)):
            monkeypatch.setattr(os, "geteuid", lambda own=own: own)
            assert is_own_user(accepted) is expected


def test_the_port_of_a_stranger_who_has_hung_up_may_be_the_user_s_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's table then names the user, who is not the author of the request."""
    found: list[int | None] = []
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        me = server.getsockname()
        stranger = stack.enter_context(socket.create_connection(me))
        accepted, peer = server.accept()
        stack.enter_context(accepted)

        def late(*ends: tuple[str, int]) -> int | None:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stranger.close()  # with a reset, which frees the port
            stack.enter_context(socket.create_connection(me, source_address=peer))
            found.append(owner_uid(*ends))
            return found[-1]

        monkeypatch.setattr(socket_owner, "owner_uid", late)
        assert not is_own_user(accepted)
        assert found == [os.geteuid()]


def test_sockets_of_both_families_are_found() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            server = socket.create_server((host, 0), family=family)
        except OSError:
            pytest.skip(f"no {host} here")
        with server, socket.create_connection(server.getsockname()[:2]), server.accept()[0] as accepted:
            assert is_own_user(accepted)
            assert owner_uid((host, 1), server.getsockname()[:2]) is None


def test_a_socket_of_ipv6_that_calls_ipv4_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as client:
        try:
            client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        except OSError:
            pytest.skip("no IPv6 here")
        with server.accept()[0] as accepted:
            assert is_own_user(accepted)


def test_a_cookie_carries_a_token_for_half_a_day(tmp_path: Path) -> None:
    token = str(issue(tmp_path / "tokens.json", SECRET, "reader", ("read",), 0))
    now = 1_000.0
    cookie = LoginCookie(SECRET, is_secure=True, now_s=lambda: now)
    text = cookie.header(token)
    assert text.startswith("__Host-lockgate-")
    assert text.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure")
    value = text.partition("=")[2].partition(";")[0]
    assert token not in text
    assert cookie.opened(value) == token
    assert LoginCookie("another secret of length", is_secure=True, now_s=lambda: now).opened(value) == ""
    for wrong in (value[:-4] + "AAA=", "", "é", "A" * 5_000, "AAAA"):
        assert cookie.opened(wrong) == ""
    now += 43_201
    assert cookie.opened(value) == ""
    with pytest.raises(ValueError, match="too long for a cookie"):
        cookie.header("x" * 4_000)
    with pytest.raises(ValueError, match="this cluster has no secret"):
        LoginCookie("", is_secure=True).header(token)
    assert "Max-Age=0" in cookie.header("")


def test_a_cookie_grants_access_and_the_secret_never_becomes_one(served: Served, tmp_path: Path) -> None:
    token = str(issue(tmp_path / "tokens.json", SECRET, "reader", ("read",), 0))
    callers = HttpCallers(Credentials(SECRET), is_local=True)
    value = callers.cookie.header(token).partition(";")[0]
    assert ask(served.server.address, "/who", headers={"Cookie": f"a=b; {value}"}).json["token"] == token
    scope = {"client": ("127.0.0.1", 1), "headers": []}
    assert str(callers.with_token(token, scope).token) == token
    with pytest.raises(HttpRefusal, match="log in with a token"):
        callers.with_token(SECRET, scope)


def test_off_loopback_no_user_is_the_owner() -> None:
    callers = HttpCallers(Credentials(SECRET), is_local=False)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        ends = {"client": client.getsockname(), "server": server.getsockname()}
        scope = {**ends, "headers": [], "state": {SOCKET: accepted}}
        assert HttpCallers(Credentials(SECRET), is_local=True).caller(scope).is_owner
        with pytest.raises(HttpRefusal, match="this needs a token"):
            callers.caller(scope)
