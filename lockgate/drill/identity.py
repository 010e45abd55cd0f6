"""Whether a process id that a cluster tells means a process here: it may be one of another machine or container."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_LISTENS = "0A"  # a state in /proc/net/tcp


def listens_at(pid: int, address: str) -> bool:
    """Whether process `pid` of this machine holds the port that listens at `host:port`, which has to be this machine's.

    False as well where that cannot be told: for a process of another user, or on a system without Linux's /proc.
    """
    host, _, port = address.rpartition(":")
    try:
        return _is_here(host.strip("[]")) and bool(_listening(int(port)) & _sockets(pid))
    except (OSError, ValueError):
        return False


def _is_here(host: str) -> bool:
    """Whether the host's name or address is this machine's own: no other lets a socket be bound to it."""
    for family, kind, protocol, _, place in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as own:
            try:
                own.bind(place)
            except OSError:
                continue
            return True
    return False


def _listening(port: int) -> set[str]:
    """Inodes of the sockets that listen at the port, in this network namespace."""
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                found.add(inode)
    return found


def _sockets(pid: int) -> set[str]:
    """Inodes of the sockets that a process has open. Raises OSError when it is gone, or not ours to look at."""
    folder = f"/proc/{pid}/fd"
    found = set()
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:  # closed just now
            continue
        if target.startswith("socket:["):
            found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found
