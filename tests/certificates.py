"""An authority and a server's certificate, made for one test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from cryptography import x509
from lockgate_common.certificates import load_authority, make_authority
from lockgate_common.security import TlsFiles

HOSTS = ("localhost", "127.0.0.1")


def make_certificates(folder: Path, name: str = "server", hosts: tuple[str, ...] = HOSTS) -> TlsFiles:
    """PEM files in `folder`, valid for a day. The authority of the folder is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = load_authority(folder) or make_authority(folder, f"authority of {name}", 1)
    return authority.issue(folder, name, hosts, 1)


def ended_certificate(folder: Path, name: str) -> TlsFiles:
    """A client's, of the authority in `folder`, that was valid until a minute ago."""
    ends, at = x509.CertificateBuilder.not_valid_after, datetime.now(UTC) - timedelta(minutes=1)
    with mock.patch.object(x509.CertificateBuilder, "not_valid_after", lambda builder, _: ends(builder, at)):
        return make_certificates(folder, name, hosts=())


def early_certificate(folder: Path, name: str) -> TlsFiles:
    """One of the authority in `folder` that is valid from a minute ahead on."""
    begins, at = x509.CertificateBuilder.not_valid_before, datetime.now(UTC) + timedelta(minutes=1)
    with mock.patch.object(x509.CertificateBuilder, "not_valid_before", lambda builder, _: begins(builder, at)):
        return make_certificates(folder, name)
