"""Bytes on the port of a gRPC server that are no good HTTP/2: what stands before every rpc."""

from __future__ import annotations

import socket

from tests.fuzz.target import CASE_S, Target

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_STREAM, _END_HEADERS = 1, 4


def port_target(name: str, address: str, path: str) -> Target:
    """path: of an rpc that anybody may call."""
    host, _, port = address.rpartition(":")

    def feed(data: bytes) -> str:
        """Returns when the server has closed the connection."""
        with socket.create_connection((host, int(port)), CASE_S) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
            except TimeoutError:
                raise
            except OSError as error:  # it has not waited for the rest
                return type(error).__name__
        return "closed"

    return Target(
        f"port of the {name}", feed, [_call(path.encode()), _call(b"/no/\xff\xfe"), _PREFACE], (), is_lenient=True
    )


def _call(path: bytes) -> bytes:
    """A whole connection with one call, its headers as they are."""
    headers = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"authorization", b"Bearer of nothing"),
    )
    block = b"".join(b"\x00" + bytes([len(key)]) + key + bytes([len(value)]) + value for key, value in headers)
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, b""),
            _frame(_HEADERS, _END_HEADERS, 1, block),
            _frame(_DATA, _END_STREAM, 1, b"\x00" * 5),
            _frame(_PING, 0, 0, b"12345678"),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
