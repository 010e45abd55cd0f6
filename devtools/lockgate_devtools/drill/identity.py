"""Whether a reported process id refers to a process of this machine, not of another machine or container."""

from __future__ import annotations

import socket

from lockgate_common.addresses import host_and_port

from lockgate_devtools.cluster.sockets import listening, sockets


def listens_at(pid: int, address: str) -> bool:
    """Whether process `pid` of this machine owns the socket that listens at `host:port`, an address of this machine.

    Also False if that cannot be determined: for a process of another user, or on a system without Linux's /proc.
    """
    try:
        host, port = host_and_port(address)
        return _is_here(host) and bool(listening(port) & sockets(pid))
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
