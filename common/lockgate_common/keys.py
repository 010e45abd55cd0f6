"""Keys for one purpose each, derived from the cluster's secret with HKDF (RFC 5869, SHA-256, one block).

Whoever gets hold of one of them can neither compute the secret nor any other key.
"""

from __future__ import annotations

import hashlib
import hmac

_SALT = b"lockgate"


def derived_key(secret: str, purpose: str) -> bytes:
    """32 bytes. Raises ValueError without a secret."""
    if not secret:
        raise ValueError("there is no secret to derive a key from")
    return hkdf(secret.encode(), _SALT, purpose.encode())


def hkdf(material: bytes, salt: bytes, info: bytes) -> bytes:
    """The first 32 bytes of HKDF-SHA256."""
    extracted = hmac.digest(salt, material, hashlib.sha256)
    return hmac.digest(extracted, info + b"\x01", hashlib.sha256)


def mac(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 of the parts. Each is preceded by its length, so that no two lists of parts look alike."""
    return hmac.digest(key, b"".join(len(part).to_bytes(8, "big") + part for part in parts), hashlib.sha256)
