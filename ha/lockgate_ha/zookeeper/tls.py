"""Kazoo's connections over TLS. Its own would trust every authority of the system besides the cluster's."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from lockgate_common.tls import TlsFiles, client_context

Selected = tuple[list[Any], list[Any], list[Any]]


def check(tls: TlsFiles | None) -> None:
    """Raises SecurityError for files that cannot be used. Later, sessions try again until they can."""
    if tls is not None:
        client_context(tls)


def transport(tls: TlsFiles | None, *, checks_host: bool = True) -> dict[str, Any]:
    """Options of one kazoo client that reaches ZooKeeper like that."""
    return {} if tls is None else {"handler": _TlsHandler(tls, checks_host)}


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    def __init__(self, tls: TlsFiles, checks_host: bool) -> None:
        super().__init__()
        self._tls = tls
        self._checks_host = checks_host

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, hostname: str | None = None, **_: Any
    ) -> ssl.SSLSocket:
        """Raises OSError only, upon which kazoo tries again: files may be replaced at any time."""
        try:
            context = client_context(self._tls)
            context.check_hostname = self._checks_host
            plain = socket.create_connection(address, timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(plain, server_hostname=hostname or address[0])
        except (ssl.SSLError, ValueError) as error:  # files that cannot be used, a host that cannot be a name
            raise OSError(str(error)) from error

    def select(self, read: Sequence[Any], write: Sequence[Any], other: Sequence[Any], timeout: Any = None) -> Selected:
        """Data that TLS has already taken off a connection cannot be seen in the connection itself."""
        waiting = [item for item in read if isinstance(item, ssl.SSLSocket) and item.pending()]
        found = super().select(read, write, other, 0 if waiting else timeout)
        return [*waiting, *(item for item in found[0] if item not in waiting)], found[1], found[2]
