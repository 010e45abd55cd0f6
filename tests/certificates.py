"""An authority and a server's certificate, made for one test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lockgate_common.security import TlsFiles

_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_certificates(folder: Path, name: str = "server") -> TlsFiles:
    """PEM files in `folder` for 127.0.0.1 and localhost, valid for a day."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key, authority, authority_key = (
        str(folder / f"{name}.{part}.pem") for part in ("certificate", "key", "authority", "authority-key")
    )
    issuer, subject = f"/CN=authority of {name}", f"/CN={name}"
    _openssl("req", "-x509", *_KEY, "-keyout", authority_key, "-out", authority, "-days", "1", "-subj", issuer)
    signing = ("-CA", authority, "-CAkey", authority_key, "-addext", _NAMES)
    _openssl("req", "-x509", *_KEY, "-keyout", key, "-out", certificate, "-days", "1", "-subj", subject, *signing)
    return TlsFiles(certificate, key, authority)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
