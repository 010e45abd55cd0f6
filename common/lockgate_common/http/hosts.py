"""The names under which a server may be called.

A foreign page can let its own name point at 127.0.0.1 (DNS rebinding); the browser then takes both for one
site, and only the `Host` header still says which name was meant.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from lockgate_common.tls import Pem, TlsFiles

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def host_name(header: str) -> str:
    """The name in a `Host` header, without port and brackets, in lower case."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def is_called_so(name: str, names: Iterable[str]) -> bool:
    """True for one of the names; `*.` stands for one label."""
    parent = name.partition(".")[2]
    return any(name == known or (bool(parent) and known == f"*.{parent}") for known in names)


class HostNames:
    """Those of a server at `host:port`: of loopback, of its address, and of its certificate. Not thread-safe."""

    def __init__(self, bound: str, tls: TlsFiles | None) -> None:
        self._own = frozenset({*LOOPBACK, host_name(bound)} - {"0.0.0.0", "::", ""})
        self._tls = tls
        self._pem: Pem | None = None
        self._names = self._own

    def current(self) -> frozenset[str]:
        """Those of the newest certificate."""
        pem = self._tls.read() if self._tls is not None else None
        if pem is not None and pem is not self._pem:
            self._pem, self._names = pem, self._own | _certificate_names(pem.certificate)
        return self._names


def _certificate_names(pem: bytes) -> set[str]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(ipaddress.ip_address(str(found))) for found in names.get_values_for_type(x509.IPAddress)}
    return {name.lower() for name in names.get_values_for_type(x509.DNSName)} | addresses
