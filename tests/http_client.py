"""Requests to HTTP servers of this machine."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

from lockgate_common.json_input import parse_json

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Answer:
    """status, headers in lower case, body."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        """The value in the body."""
        return parse_json(self.body)

    @property
    def error(self) -> str:
        """The sentence of a refusal."""
        return str(self.json["error"])


def ask(
    address: str,
    path: str = "/",
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """One request on a connection of its own."""
    host, _, port = address.rpartition(":")
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    else:
        connection = http.client.HTTPSConnection(host, int(port), timeout=PATIENCE_S, context=context)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def raw(address: str, *sent: bytes) -> bytes:
    """Everything that the server says on a plain connection until it closes it."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        for part in sent:
            connection.sendall(part)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received
