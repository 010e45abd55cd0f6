"""Hosts that a certificate may name."""

from __future__ import annotations

import ipaddress
import re

from cryptography import x509

from lockgate_common.tls import SecurityError

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MOST_HOST = 253  # of a name in DNS
_LEAST_WILD = 2  # labels behind `*.`: TLS libraries let `*.example` stand for nothing


def alternative_name(host: str) -> x509.GeneralName:
    """The entry for a host name or an IP address. Raises SecurityError with a sentence for anything else.

    TLS libraries match such an entry letter by letter, so a mistake in it would show at the first connection only.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if problem := _problem(host):
            raise SecurityError(f"{host!r} is not a valid host for a certificate: {problem}") from None
        return x509.DNSName(host)
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise SecurityError(f"{host!r} is not a valid host for a certificate: omit the interface after %")
    return x509.IPAddress(address)


def _problem(host: str) -> str:
    if not host:
        return "it is empty"
    if len(host) > _MOST_HOST:
        return f"a name has at most {_MOST_HOST} characters, but this one has {len(host)}"
    if "/" in host:
        return "give only the name, without scheme and path"
    if "[" in host or "]" in host:
        return "give only the address, without brackets and port"
    if ":" in host:
        return "give only the name or address, without a port"
    if not host.isascii():
        return "give the name in its DNS form (xn--...)"
    name = host.removeprefix("*.")
    labels = name.split(".")
    if name != host and len(labels) < _LEAST_WILD:
        return "after `*.` it needs a name of at least two parts"
    if not all(map(_LABEL.fullmatch, labels)):
        return (
            "its parts between dots have 1 to 63 letters, digits and hyphens, with no hyphen at an end; `*` may stand "
            "for the first part only"
        )
    if labels[-1].isdecimal():
        return "it looks like an address, but is not one"
    return ""
