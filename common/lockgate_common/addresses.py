"""The two addresses of a server: the one it listens on (bind), and the one that others connect to (advertise).

Also the addresses of ZooKeeper's servers, and those that calls come from.
"""

from __future__ import annotations

import ipaddress
import re
from enum import Enum
from urllib.parse import unquote

_ZOOKEEPER_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:,/@?#]+)(?::([0-9]{1,5}))?")


class ProbeAnswer(Enum):
    """The result of a TCP connection to a server's address."""

    REFUSED = "refused"  # the process is gone
    ACCEPTED = "accepted"  # the process, or at least its kernel, is running
    NONE = "none"  # unreachable, unknown or silent: proves nothing


def host_and_port(address: str) -> tuple[str, int]:
    """Splits `host:port`; returns the host without brackets. Raises ValueError, also for a port above 65535.

    The system takes such a port for another one: what nothing listens on there proves nothing.
    """
    host, _, port = address.rpartition(":")
    if not 0 <= int(port) <= 65535:
        raise ValueError(f"port {port} is not between 0 and 65535")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """True for a `host:port` that is reached without leaving this machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(peer: str) -> str:
    """The part of a gRPC peer that it cannot change at will: no port, and see `network_of`."""
    kind, _, rest = unquote(peer).partition(":")
    return (kind in ("ipv4", "ipv6") and network_of(rest.rpartition(":")[0].strip("[]"))) or peer


def network_of(host: str) -> str:
    """The part of an IP address that its host cannot change at will: of an IPv6 address the network."""
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((int(address), 64), strict=False))


def zookeeper_problem(hosts: str) -> str:
    """The problem with the addresses of an ensemble, as the rest of a sentence about them; "" when there is none.

    hosts: `host:port[,host:port...][/root]`; the default port of a server is ZooKeeper's, 2181.
    """
    for part in hosts.partition("/")[0].split(","):
        found = _ZOOKEEPER_SERVER.fullmatch(part.strip())
        if found is None or not 1 <= int(found[2] or 2181) <= 65535:
            return "it must be host:port[,host:port...] with ports from 1 to 65535"
    return ""


def address_problem(bind: str, advertise: str) -> str:
    """The problem with the pair, as a sentence that begins with the setting's name; "" when there is none.

    bind, advertise: `host:port`; an empty advertise means the bound address. That is invalid when the process listens
    on every address of the machine: others need an address of one machine, and only its operator knows which one they
    can reach.
    """
    for name, address in (("bind", bind), ("advertise", advertise or bind)):
        if problem := port_problem(address):
            return f"{name}: {problem}"
    if names_one_machine(advertise or bind):
        return ""
    if advertise:
        return f"advertise: nothing can connect to {advertise}; give the host:port at which others reach this process"
    return (
        f"advertise: bind is {bind}, every address of this machine, to which others cannot connect; set advertise "
        f"to the host:port under which they reach this process"
    )


def port_problem(address: str) -> str:
    """What is wrong with a `host:port`; "" when nothing is."""
    host, _, port = address.rpartition(":")
    return "" if host and port.isdigit() and int(port) <= 65535 else f"{address!r} is not host:port"


def names_one_machine(address: str) -> bool:
    """False for a `host:port` that stands for every address of a machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return True  # a host name
