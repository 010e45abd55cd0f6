"""Ports of this machine for servers that must know theirs before they start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LEAST = 10_240
_FIRST_EPHEMERAL = 32_768  # Linux's own, where the system does not tell
_TRIES = 1_000


class NoFreePort(Exception):
    """One sentence: where there is none."""


def is_free(host: str, port: int) -> bool:
    """True when a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def choose(host: str, count: int) -> tuple[int, ...]:
    """Free ports. Raises NoFreePort.

    They lie below the range that the system hands to outgoing connections, so that none of those takes one between
    this look and the server's start, or while the server is away: who tries again and again to reach a port of that
    range is at last connected to itself, and the server cannot come back.
    """
    upper = _first_ephemeral_port()
    found: set[int] = set()
    for _ in range(_TRIES):
        port = random.randrange(_LEAST, upper)
        if port not in found and is_free(host, port):
            found.add(port)
        if len(found) == count:
            return tuple(sorted(found))
    raise NoFreePort(f"no free port between {_LEAST} and {upper} on {host}")


def _first_ephemeral_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = _FIRST_EPHEMERAL
    return first if first > _LEAST + 2 * _TRIES else _FIRST_EPHEMERAL
