"""Ports of this machine for servers that must know theirs before they start, and a probe for listening servers."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

from lockgate_common.addresses import ProbeAnswer, host_and_port

_PROBE_TIMEOUT_S = 0.5
_ENDS_WITHIN_S = 0.02  # a part of the 50 ms after which an election challenges a leader that has not answered
_PAUSES_S = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
_LEAST = 10_240
_FIRST_EPHEMERAL = 32_768  # Linux's default, where the system does not report the range
_TRIES = 1_000


class NoFreePort(Exception):
    """There is no free port. The message is one sentence."""


def is_free(host: str, port: int) -> bool:
    """True when a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def probe_tcp(address: str) -> ProbeAnswer:
    """Tries a TCP connection to `host:port`, for half a second.

    A process that dies loses its connections before its port, which accepts for that moment. A connection that ends at
    once therefore proves nothing, and another one is tried, a few times in the next 30 ms.
    """
    answer = ProbeAnswer.NONE
    try:
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            try:
                connection = socket.create_connection(host_and_port(address), _PROBE_TIMEOUT_S)
            except ConnectionRefusedError:
                return ProbeAnswer.REFUSED
            except ConnectionError:
                continue  # it has ended already
            with connection:
                answer = ProbeAnswer.ACCEPTED
                if not _ends_at_once(connection):
                    break
    except (OSError, ValueError, OverflowError):
        pass
    return answer


def _ends_at_once(connection: socket.socket) -> bool:
    connection.settimeout(_ENDS_WITHIN_S)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def choose(host: str, count: int) -> tuple[int, ...]:
    """Free ports. Raises NoFreePort.

    They are below the range for outgoing connections, so that no such connection takes one between this check and the
    server's start, or while the server is down: a client that keeps trying to reach a port of that range eventually
    connects to itself, and the server cannot start again.
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
