"""TLS of a Python server, with the same files as the gRPC ports."""

from __future__ import annotations

import logging
import ssl

from lockgate_common.tls import Pem, SecurityError, TlsFiles, load_authority_into, load_certificate_into

log = logging.getLogger(__name__)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """For a listening socket. Each handshake is made with the newest files. Not thread-safe. Raises SecurityError."""
    files.check(is_server=True)
    newest = _Newest(files)
    context = newest.context()

    def renew(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Before each handshake, also of clients that name no server."""
        connection.context = newest.context()

    context.sni_callback = renew
    return context


class _Newest:
    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._pem: Pem | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Raises SecurityError as long as there was none."""
        pem = self._files.read()
        if self._context is None or pem is not self._pem:
            try:
                self._context = _context(self._files, pem)
            except SecurityError as error:  # they are being changed again
                if self._context is None:
                    raise
                log.error("the TLS files have changed but are unusable, so the previous ones stay in use: %s", error)
            else:
                self._pem = pem
        return self._context


def _context(files: TlsFiles, pem: Pem) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_authority_into(context, pem.authority, files)
    load_certificate_into(context, files)
    if files.mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
