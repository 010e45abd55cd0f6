"""The PEM files of TLS, and TLS as Python itself does it: with ZooKeeper. gRPC has its own, see `security`."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


class SecurityError(ValueError):
    """A secret or certificate that is missing, unreadable or too weak. The message says what to do."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. Servers need all three; clients need `authority` alone, unless the server wants to know them."""

    certificate: str = ""
    key: str = ""
    authority: str = ""


def read_tls_file(path: str) -> bytes:
    """The content of one of the files. Raises SecurityError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SecurityError(f"cannot read the TLS file {path!r}: {error.strerror}") from error


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Trusts `authority` alone, checks host names, and shows `certificate` if there is one. Raises SecurityError.

    Made for each connection, so that renewed files are used from the next one on.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authority = read_tls_file(files.authority)
    try:
        context.load_verify_locations(cadata=authority.decode())
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise SecurityError(f"{files.authority} holds no certificate of an authority in PEM") from error
    if files.certificate:
        _show(context, files)
    return context


def _show(context: ssl.SSLContext, files: TlsFiles) -> None:
    read_tls_file(files.certificate)
    read_tls_file(files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")  # never asks at the terminal
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(
            f"{files.certificate} and {files.key} are not a certificate and its key; give both in PEM, the key without "
            "a password"
        ) from error
