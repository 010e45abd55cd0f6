"""Ports of this machine's loopback interface."""

from __future__ import annotations

import lockgate_common.ports

from lockgate_devtools.cluster.errors import ClusterError

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """True when a server could listen on the port now."""
    return lockgate_common.ports.is_free(HOST, port)


def require_free(port: int, owner: str, option: str) -> None:
    """Raises ClusterError when a port chosen by the user is taken."""
    if port and not is_free(port):
        raise ClusterError(
            f"port {port} on {HOST} is taken by another process, {owner} cannot listen on it; "
            f"stop that process or choose another port with {option}"
        )


def choose(count: int) -> tuple[int, ...]:
    """Free ports for servers that must know theirs before they start. Raises ClusterError."""
    try:
        return lockgate_common.ports.choose(HOST, count)
    except lockgate_common.ports.NoFreePort as error:
        raise ClusterError(str(error)) from error
