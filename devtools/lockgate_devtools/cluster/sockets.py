"""TCP sockets of this machine and the processes that own them, out of Linux's /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"  # a socket state


def is_known() -> bool:
    """Whether this system says which process owns which socket."""
    return _TABLES[0].exists()


def listening(port: int) -> set[str]:
    """Inodes of the sockets that listen at the port, in this network namespace."""
    return {inode for local, _, state, inode in _rows() if state == _LISTENS and local == port}


def connections() -> dict[tuple[int, int], str]:
    """Inodes of the ends of connections, by their own port and the remote one, in this network namespace."""
    return {(local, remote): inode for local, remote, state, inode in _rows() if state != _LISTENS}


def sockets(pid: int) -> set[str]:
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


def _rows() -> Iterator[tuple[int, int, str, str]]:
    """Local port, remote port, state, inode."""
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, remote, state, *_, inode = line.split()[:10]
            yield int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16), state, inode
