"""HTTP requests as they are on the wire: each path of the dashboard and its JSON API, and a page of metrics.

Each is tried by the owner, by a stranger, and by somebody with a token that may read, in a header and in a cookie.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from lockgate_common.http.login_cookie import LoginCookie
from lockgate_common.json_input import parse_json
from lockgate_web.endpoints import endpoints
from lockgate_web.reads import Reads

from tests.fuzz.target import CASE_S, Target, check_sentence

_QUIET_S = 0.05  # without a byte of the answer, until the connection is closed to the server
_COST = 6
_BODY = b'{"token": "x", "request_id": "r", "drain": true, "timeout_ms": 1, "parallelism": {"count": 2}}'
_PASSED_ON = b"X-Forwarded-For: 192.0.2.1\r\n"
"""Whose socket it is does not count for a request with this."""


@dataclass(frozen=True)
class _Visitor:
    """shows: header lines; is_owner: of the process; may_read: with what it shows, if that is not damaged."""

    name: str
    shows: bytes
    is_owner: bool
    may_read: bool

    def check(self, data: bytes, answer: bytes) -> str:
        """The status of the first answer, which may not give the visitor more than is due."""
        status = _status(answer)
        method, _, rest = data.lstrip(b"\r\n").partition(b" ")
        path = unquote_to_bytes(rest.split(b"\n")[0].split(b" ")[0].split(b"?")[0])
        if self.is_owner or not status.startswith("HTTP 2") or not _is_guarded(path):
            return status
        is_due = self.may_read and method in (b"GET", b"HEAD")
        assert is_due, f"{self.name} is let in: {data!r}"
        return status


def web_targets(dashboard: str, metrics: str, secret: str, token: str) -> Iterator[Target]:
    """token: may read. Counted is the status of the answer."""
    cookie = LoginCookie(secret, is_secure=False).header(token).partition(";")[0]
    visitors = (
        _Visitor("the owner", b"", is_owner=True, may_read=True),
        _Visitor("a stranger", b"", is_owner=False, may_read=False),
        _Visitor("a reader", f"Authorization: Bearer {token}\r\n".encode(), is_owner=False, may_read=True),
        _Visitor("a browser", f"Cookie: {cookie}\r\n".encode(), is_owner=False, may_read=True),
    )
    for visitor in visitors:
        yield _target("dashboard", dashboard, visitor, _dashboard_requests(visitor))
        yield _target("metrics", metrics, visitor, [_request("GET", "/metrics", visitor.shows)])


def _target(name: str, address: str, visitor: _Visitor, samples: list[bytes]) -> Target:
    host, _, port = address.rpartition(":")

    def feed(data: bytes) -> str:
        with socket.create_connection((host, int(port)), CASE_S) as connection:
            answer = b""
            try:
                connection.sendall(data if visitor.is_owner else _passed_on(data))
                answer += _until_quiet(connection)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(CASE_S)
                while piece := connection.recv(65_536):
                    answer += piece
            except TimeoutError:
                raise
            except OSError as error:  # it has not waited for the rest
                return type(error).__name__ if not answer else visitor.check(data, answer)
        return visitor.check(data, answer) if answer else "closed"

    return Target(f"web {name} for {visitor.name}", feed, samples, (), is_lenient=True, cost=_COST)


def _dashboard_requests(visitor: _Visitor) -> list[bytes]:
    """The job of the owner is none, as its orders would be carried out."""
    key = "none" if visitor.is_owner else "job"
    known = endpoints(Reads("fuzzed", "embedded"))
    requests = [(item.method, item.path.replace("{key}", key).replace("{id}", "7")) for item in known]
    others = [("GET", path) for path in ("/", "/metrics", "/healthz", "/jobs/none", "/static/style.css")]
    return [_request(method, path, visitor.shows) for method, path in (*requests, *others)]


def _passed_on(data: bytes) -> bytes:
    """With the line behind the first one, however that ends, where no damage comes to it."""
    first, end, rest = data.partition(b"\n")
    return first + end + _PASSED_ON + rest if end else data


def _is_guarded(path: bytes) -> bool:
    free = (b"/api/v1/openapi.json", b"/api/v1/login", b"/api/v1/logout")
    return path == b"/metrics" or (b"/api/" in path and path not in free)


def _until_quiet(connection: socket.socket) -> bytes:
    found = b""
    connection.settimeout(_QUIET_S)
    try:
        while piece := connection.recv(65_536):
            found += piece
    except TimeoutError:
        pass
    return found


def _status(answer: bytes) -> str:
    """Of the first answer on a connection. A refusal by the dashboard is a sentence, and none is its own fault."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    version, code, *_ = head.split(None, 2)
    assert version == b"HTTP/1.1", head
    assert code != b"500", answer
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    if code >= b"400" and length and rest and b"content-type: application/json" in head.lower():
        check_sentence(parse_json(rest[: int(length[1])])["error"])
    return f"HTTP {code.decode()}"


def _request(method: str, path: str, shows: bytes) -> bytes:
    body = _BODY if method == "POST" else b""
    head = f"{method} {path}?offset=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n".encode()
    return head + shows + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
