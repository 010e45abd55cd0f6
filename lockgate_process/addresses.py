"""The two addresses of a server: where it listens (bind), and what others are told to connect to (advertise).

And those of ZooKeeper's servers.
"""

from __future__ import annotations

import ipaddress
import re

_ZOOKEEPER_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:,/@?#]+)(?::([0-9]{1,5}))?")


def zookeeper_problem(hosts: str) -> str:
    """What is wrong with the addresses of an ensemble, as the rest of a sentence about them; "" when nothing is.

    hosts: `host:port[,host:port...][/root]`; a server without a port has ZooKeeper's own, 2181.
    """
    for one in hosts.partition("/")[0].split(","):
        found = _ZOOKEEPER_SERVER.fullmatch(one.strip())
        if found is None or not 1 <= int(found[2] or 2181) <= 65535:
            return "it takes host:port[,host:port...] with ports from 1 to 65535"
    return ""


def address_problem(bind: str, advertise: str) -> str:
    """What is wrong with the pair, as a sentence that begins with the setting's name; "" when nothing is.

    bind, advertise: `host:port`; advertise may be empty, which means the address that is bound. That will not do where
    every address of the machine is bound: what others connect to has to name one machine, and which of its names and
    addresses they can reach only its operator knows.
    """
    for name, address in (("bind", bind), ("advertise", advertise or bind)):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            return f"{name}: {address!r} is not host:port"
    if _names_one_machine(advertise or bind):
        return ""
    if advertise:
        return f"advertise: nobody can connect to {advertise}; give the host:port under which others reach this process"
    return (
        f"advertise: bind is {bind}, every address of this machine, and others cannot connect to that; set advertise "
        f"to the host:port under which they reach this process"
    )


def _names_one_machine(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return True  # a name
