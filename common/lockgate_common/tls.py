"""TLS: PEM files that are read again when they have changed, and what a failed handshake means.

gRPC makes its own connections with them; `client_context` is for Python's, which are those to ZooKeeper, and
`http.server_context` for HTTP.
"""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import grpc

from lockgate_common.recurring_log import RecurringLog
from lockgate_common.reread import Versions, version_of
from lockgate_common.trusted_files import UntrustedFile, read_trusted

log = logging.getLogger(__name__)


class SecurityError(ValueError):
    """A secret or certificate that is missing, unreadable or too weak. The message says what to do."""


@dataclass(frozen=True)
class Pem:
    """What the files hold: a certificate with those that signed it, its key, and the authority's certificates.

    The first two are empty at a client that shows no certificate.
    """

    certificate: bytes
    key: bytes
    authority: bytes

    def ends(self) -> datetime | None:
        """Until when the certificate is valid; None without one."""
        from cryptography import x509

        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc if self.certificate else None

    def why_not_now(self) -> str:
        """Why the certificate is not valid at this time, as a predicate; "" if it is, or there is none."""
        from cryptography import x509

        if not self.certificate:
            return ""
        certificate, now = x509.load_pem_x509_certificate(self.certificate), datetime.now(UTC)
        if certificate.not_valid_after_utc <= now:
            return "has expired"
        begins = certificate.not_valid_before_utc
        return f"is valid from {begins:%Y-%m-%d %H:%M:%S} UTC on only" if begins > now else ""

    def server_configuration(self) -> grpc.ServerCertificateConfiguration:
        """For one handshake of a server."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.authority)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. Servers need all three; clients need `authority` alone, unless each side asks for a certificate.

    mutual: servers let only those connect who show a certificate of `authority`, and clients show theirs.
    """

    certificate: str = ""
    key: str = ""
    authority: str = ""
    mutual: bool = False

    def check(self, *, is_server: bool = False) -> None:
        """Raises SecurityError naming the first setting that is missing."""
        for name, path in (("certificate", self.certificate), ("key", self.key), ("authority", self.authority)):
            if path:
                continue
            if self.mutual:
                raise SecurityError(f"tls.mutual needs tls.certificate, tls.key and tls.authority: {_set(name)}")
            if is_server:
                raise SecurityError(f"a server with TLS needs tls.certificate, tls.key and tls.authority: {_set(name)}")
            if name == "authority":
                raise SecurityError(f"a client with TLS needs an authority to trust: {_set(name)}")
        if bool(self.certificate) != bool(self.key):
            raise SecurityError(f"a certificate needs its key: {_set('key' if self.certificate else 'certificate')}")

    def read(self) -> Pem:
        """The newest content that can be used; the same object until the files change. Raises SecurityError."""
        return self._newest.read()

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a new channel. Raises SecurityError."""
        pem = self.read()
        return grpc.ssl_channel_credentials(pem.authority, pem.key or None, pem.certificate or None)

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a port. Each handshake is made with the newest files. Raises SecurityError."""
        self.check(is_server=True)
        lock, given = threading.Lock(), self.read()

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            """On grpcio's threads, before each handshake. None: nothing has changed."""
            nonlocal given
            with lock:
                newest = self.read()
                if newest is given:
                    return None
                given = newest
                return newest.server_configuration()

        return grpc.dynamic_ssl_server_credentials(
            given.server_configuration(),
            renewed,  # type: ignore[arg-type]  # the stubs know no None
            self.mutual,
        )

    @cached_property
    def _newest(self) -> _Newest:
        return _Newest(self)


class _Newest:
    """Reads the files when they have changed. What cannot be used does not take the place of what can. Thread-safe."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._versions = Versions()
        self._pem: Pem | None = None
        self._trouble = RecurringLog()

    def read(self) -> Pem:
        """Raises SecurityError as long as nothing usable has been read."""
        with self._lock:
            files = self._files
            version = tuple(version_of(path) for path in (files.certificate, files.key, files.authority))
            if self._pem is None or self._versions.is_due(version):
                self._pem = self._renewed(self._pem, version)
            return self._pem

    def _renewed(self, before: Pem | None, version: object) -> Pem:
        try:
            pem = _usable(self._files)
            if before is not None and (problem := pem.why_not_now()):
                raise SecurityError(f"the certificate {self._files.certificate} {problem}")
        except SecurityError as error:
            if before is None:
                raise
            self._versions.failed(version)
            text = "the TLS files have changed but are unusable, so the previous ones stay in use: %s"
            self._trouble.error(log, str(error), text, error)
            return before
        self._versions.used(version)
        if before is not None:
            log.info("new TLS files are in use: %s", self._files.certificate or self._files.authority)
        return pem


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Trusts `authority` alone, checks host names, and shows `certificate` if there is one. Raises SecurityError.

    Made for each connection, so that renewed files are used from the next one on.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_authority_into(context, read_tls_file(files.authority), files)
    if files.certificate:
        load_certificate_into(context, files)
    return context


def load_authority_into(context: ssl.SSLContext, authority: bytes, files: TlsFiles) -> None:
    """Whom to trust. authority: what the file of that name holds. Raises SecurityError."""
    try:
        context.load_verify_locations(cadata=authority.decode())
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise SecurityError(f"{files.authority} contains no PEM certificate of an authority") from error


def load_certificate_into(context: ssl.SSLContext, files: TlsFiles) -> None:
    """What to show. Raises SecurityError."""
    read_tls_file(files.certificate)
    read_key(files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")  # never asks at the terminal
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(
            f"{files.certificate} and {files.key} are not a certificate and its key; give both in PEM, the key without "
            "a password"
        ) from error


def handshake_problem(details: str, tls: TlsFiles | None) -> str:
    """What a failed connection says of certificates, as a sentence that follows an address; "" when nothing.

    details: of a gRPC status; tls: of this side.
    """
    if "Socket closed" in details and "failed to connect" in details:
        if tls is None:
            return f"closes plain connections, as a server with TLS does; {_set('authority')}"
        if not tls.certificate:
            return (
                "has ended the TLS handshake, as a server with tls.mutual does for clients without a certificate; set "
                "tls.certificate and tls.key (or LOCKGATE_TLS_CERTIFICATE and LOCKGATE_TLS_KEY)"
            )
        return (
            f"has ended the TLS handshake, as a server with tls.mutual does when its authority has not signed the "
            f"certificate {tls.certificate}, or when it has expired; set tls.certificate and tls.key (or "
            "LOCKGATE_TLS_CERTIFICATE and LOCKGATE_TLS_KEY) to a valid one"
        )
    if tls is None:
        return ""
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return (
            f"has a certificate that is not of the authority {tls.authority}, or that has expired; set tls.authority "
            "(or LOCKGATE_TLS_AUTHORITY) to the certificate of the cluster's authority"
        )
    if "Hostname Verification" in details:
        return "has a certificate that is not for this address; make one that names it, or use another address"
    if "WRONG_VERSION_NUMBER" in details:
        return "does not speak TLS; unset tls.authority (or LOCKGATE_TLS_AUTHORITY), or set up TLS there"
    return ""


def _set(name: str) -> str:
    return f"set tls.{name} (or LOCKGATE_TLS_{name.upper()})"


def _usable(files: TlsFiles) -> Pem:
    """Raises SecurityError for files that are missing, half written, or do not fit each other."""
    files.check()
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = Pem(read_tls_file(files.certificate), read_key(files.key), read_tls_file(files.authority))
    part = files.authority
    try:
        x509.load_pem_x509_certificates(pem.authority)
        if not pem.key:
            return pem
        part = files.certificate
        certificate = x509.load_pem_x509_certificates(pem.certificate)[0]
        part = files.key
        key = load_pem_private_key(pem.key, None)
    except TypeError as error:
        raise SecurityError(f"the key {part} is protected by a password; use a key without one") from error
    except Exception as error:  # of many kinds
        raise SecurityError(f"the TLS file {part} is incomplete, or not PEM") from error
    if certificate.public_key() != key.public_key():
        raise SecurityError(f"the key {files.key} does not belong to the certificate {files.certificate}")
    return pem


def read_tls_file(path: str) -> bytes:
    """The content of one of the files, nothing for no file. Raises SecurityError."""
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise SecurityError(f"cannot read the TLS file {path!r}: {error.strerror}") from error


def read_key(path: str) -> bytes:
    """As `read_tls_file`, for a key: refused if other users can read it."""
    try:
        return read_trusted(Path(path), is_key=True).encode() if path else b""
    except UntrustedFile as error:
        raise SecurityError(f"the key {error}") from error
    except UnicodeDecodeError as error:
        raise SecurityError(f"the TLS file {path} is incomplete, or not PEM") from error
    except OSError as error:
        raise SecurityError(f"cannot read the TLS file {path!r}: {error.strerror}") from error
