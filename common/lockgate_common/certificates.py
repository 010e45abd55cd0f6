"""Makes authorities and certificates, for trying and where there is no other issuer: see `lockgate certificates`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lockgate_common.certificate_hosts import alternative_name
from lockgate_common.tls import SecurityError, TlsFiles
from lockgate_common.trusted_files import UntrustedFile, read_trusted

AUTHORITY_DAYS = 3_650
_EARLY = timedelta(minutes=5)  # clocks of other hosts may be behind
_MOST_NAME = 64  # what a common name holds


@dataclass(frozen=True)
class Authority:
    """Signs certificates. file: its own certificate, which the others trust."""

    file: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(self, folder: Path, name: str, hosts: Sequence[str], days: int) -> TlsFiles:
        """Makes NAME.pem and NAME.key (mode 0600) in the folder; neither may exist. Raises SecurityError.

        hosts: names and addresses at which a server may show it; without any it is for clients alone.
        """
        if not 0 < len(name) <= _MOST_NAME:
            raise SecurityError(f"{name!r} is not a valid name for a certificate; use 1 to {_MOST_NAME} characters")
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        key = ec.generate_private_key(ec.SECP256R1())
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _builder(name, key, days)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer_key, critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([alternative_name(host) for host in hosts]), critical=False
            )
        signed = builder.sign(self.key, hashes.SHA256())
        certificate, private = folder / f"{name}.pem", folder / f"{name}.key"
        _write(certificate, private, signed, key)
        return TlsFiles(str(certificate), str(private), str(self.file))


def make_authority(folder: Path, name: str, days: int = AUTHORITY_DAYS) -> Authority:
    """Makes `ca.pem` and `ca.key` (mode 0600); neither may exist. Raises SecurityError."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, key, days)
    signed = (
        builder.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNING, critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(folder / "ca.pem", folder / "ca.key", signed, key)
    return Authority(folder / "ca.pem", signed, key)


def load_authority(folder: Path) -> Authority | None:
    """The authority of a folder, None where there is none. Raises SecurityError for half of one."""
    certificate, private = folder / "ca.pem", folder / "ca.key"
    if not certificate.exists() and not private.exists():
        return None
    try:
        signed = x509.load_pem_x509_certificate(certificate.read_bytes())
        key = load_pem_private_key(read_trusted(private, is_key=True).encode(), None)
    except UntrustedFile as error:
        raise SecurityError(f"the key {error}") from error
    except OSError as error:
        raise SecurityError(
            f"cannot read {error.filename}: {error.strerror}; signing needs the authority's ca.pem and ca.key"
        ) from error
    except (ValueError, TypeError) as error:
        raise SecurityError(f"{certificate} and {private} are not an authority: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != signed.public_key():
        raise SecurityError(f"the key {private} is not the elliptic-curve key of {certificate}")
    return Authority(certificate, signed, key)


def _builder(name: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _write(certificate: Path, private: Path, signed: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """Never overwrites. The key comes first: a certificate without one would be of no use."""
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        for path, content, mode in ((private, text, 0o600), (certificate, signed.public_bytes(Encoding.PEM), 0o644)):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
    except FileExistsError as error:
        if error.filename == str(certificate):
            private.unlink()
        raise SecurityError(f"{error.filename} exists already, and nothing is overwritten; use another name") from error
    except OSError as error:
        raise SecurityError(f"cannot write {error.filename}: {error.strerror}") from error


_SIGNING = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
