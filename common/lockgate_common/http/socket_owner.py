"""The Unix user at the other end of a TCP connection within this machine, as the kernel lists it."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_ESTABLISHED = b"01"
_TCP_ESTABLISHED = b"\x01"  # the first byte of struct tcp_info
_STATE, _UID, _INODE = 3, 7, 9  # columns
_MAPPED = "::ffff:"


def is_own_user(accepted: socket.socket) -> bool:
    """True when the other end of this connection within the machine is of this process's user.

    Root counts as a stranger to another user's process: `kubectl port-forward` and the like connect as root for anyone.
    Not for connections that others may have forwarded. The table of the kernel knows ports alone, so the connection
    must still be there after the look-up: a stranger may have asked, hung up, and left the port to this user's next
    connection.
    """
    own = os.geteuid()
    try:
        uid = owner_uid(accepted.getpeername()[:2], accepted.getsockname()[:2])
        state = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return False
    return state == _TCP_ESTABLISHED and uid == own != _overflow_uid()


def owner_uid(peer: tuple[str, int], me: tuple[str, int]) -> int | None:
    """The user id of the peer's socket; None when it is not listed, or not certain.

    The kernel lists a socket that its process has closed as one of root, so only connections count that are
    established and have an inode.
    """
    for table, local, remote in _wanted(peer, me):
        try:
            content = Path(table).read_bytes()
        except OSError:
            continue
        at = content.find(b" %s %s " % (local, remote))
        if at < 0:
            continue
        columns = content[content.rfind(b"\n", 0, at) + 1 : content.find(b"\n", at)].split()
        if columns[_STATE] == _ESTABLISHED and columns[_INODE] != b"0":
            return int(columns[_UID])
    return None


def _wanted(peer: tuple[str, int], me: tuple[str, int]) -> list[tuple[str, bytes, bytes]]:
    """Where to look for the peer's end: a socket of IPv6 may have connected to an address of IPv4."""
    found = [(_TABLES["." not in peer[0]], _listed(*peer), _listed(*me))]
    if "." in peer[0]:
        found.append((_TABLES[1], _listed(_MAPPED + peer[0], peer[1]), _listed(_MAPPED + me[0], me[1])))
    return found


def _listed(host: str, port: int) -> bytes:
    """An address as in the table: words of 32 bits in the machine's order of bytes."""
    packed = ipaddress.ip_address(host).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words).encode() + b":%04X" % port


def _overflow_uid() -> int:
    """As which users appear that have no number in this namespace: they are not the same user."""
    try:
        return int(_OVERFLOW.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 65534
