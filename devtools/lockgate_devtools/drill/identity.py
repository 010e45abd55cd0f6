"""Whether a reported process id refers to a process of this machine, not of another machine or container."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from lockgate_common.addresses import host_and_port

_LISTENS = "0A"  # a socket state in /proc/net/tcp


def listens_at(pid: int, address: str) -> bool:
    """Whether process `pid` of this machine owns the socket that listens at `host:port`, an address of this machine.

    Also False if that cannot be determined: for a process of another user, or on a system without Linux's /proc.
    """
    try:
        host, port = host_and_port(address)
        return _is_here(host) and bool(_listening(port) & _sockets(pid))
    except (OSError, ValueError):
        return False


def _is_here(host: str) -> bool:
    """Whether the host's name or address is this machine's own: a socket can be bound to no other."""
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
    """Inodes of the open sockets of a process. Raises OSError when it is gone, or on missing permissions."""
    folder = f"/proc/{pid}/fd"
    found = set()
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found
