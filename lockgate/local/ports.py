"""Ports of this machine's loopback interface."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from lockgate.local.errors import ClusterError

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """True when a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def require_free(port: int, owner: str, option: str) -> None:
    """Raises ClusterError when a port that the user chose is taken."""
    if port and not is_free(port):
        raise ClusterError(
            f"port {port} on {HOST} is taken by another process, {owner} cannot listen on it; "
            f"stop that process or choose another port with {option}"
        )


def choose(count: int) -> tuple[int, ...]:
    """Free ports for servers that must know theirs before they start.

    They lie below the range that the system hands to outgoing connections, so that none of those takes one between
    this look and the server's start.
    """
    upper = _first_ephemeral_port()
    found: set[int] = set()
    for _ in range(1000):
        port = random.randrange(10_240, upper)
        if port not in found and is_free(port):
            found.add(port)
        if len(found) == count:
            return tuple(sorted(found))
    raise ClusterError(f"no free port between 10240 and {upper} on {HOST}")


def _first_ephemeral_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return first if first > 12_000 else 32_768
