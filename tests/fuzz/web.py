"""Requests to the dashboard of a coordinator as they are on the wire: each path of its JSON API, by the owner."""

from __future__ import annotations

import re
import socket

from lockgate_common.json_input import parse_json
from lockgate_web.endpoints import endpoints
from lockgate_web.reads import Reads

from tests.fuzz.target import CASE_S, Target, check_sentence

_QUIET_S = 0.05  # without a byte of the answer, until the connection is closed to the server
_COST = 2
_BODY = b'{"token": "x", "request_id": "r", "drain": true, "timeout_ms": 1, "parallelism": {"count": 2}}'


def web_target(address: str) -> Target:
    """What is counted is the answer's status."""
    host, _, port = address.rpartition(":")

    def feed(data: bytes) -> str:
        with socket.create_connection((host, int(port)), CASE_S) as connection:
            answer = b""
            try:
                connection.sendall(data)
                answer += _until_quiet(connection)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(CASE_S)
                while piece := connection.recv(65_536):
                    answer += piece
            except TimeoutError:
                raise
            except OSError as error:  # it has not waited for the rest
                return type(error).__name__ if not answer else _status(answer)
        return _status(answer) if answer else "closed"

    known = endpoints(Reads("fuzzed", "embedded"))
    samples = [_request(item.method, item.path.replace("{key}", "none").replace("{id}", "7")) for item in known]
    others = [_request("GET", path) for path in ("/", "/metrics", "/healthz", "/jobs/none", "/static/style.css")]
    return Target("web of the coordinator", feed, [*samples, *others], (), is_lenient=True, cost=_COST)


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


def _request(method: str, path: str) -> bytes:
    body = _BODY if method == "POST" else b""
    head = f"{method} {path}?offset=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
