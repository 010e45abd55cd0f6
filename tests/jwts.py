"""An issuer of JWTs: its keys, the file that a coordinator reads of them, and what it signs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from lockgate_coordinator.runtime.settings import JwtSettings

ISSUER, AUDIENCE = "https://issuer.example", "lockgate-test"


def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def rsa_key(bits: int = 2_048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


def jwk(key: Any, **more: str) -> dict[str, Any]:
    """The public half of a key."""
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), **more}


def pem(key: Any) -> str:
    """The public half of a key."""
    return str(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def write_jwks(path: Path, *keys: dict[str, Any]) -> None:
    """As an operator replaces the file: in one step, so that it is another one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"keys": keys}))
    fresh.replace(path)


class TestingIssuer:
    """One with a key on a curve, in a JWKS file."""

    def __init__(self, folder: Path) -> None:
        self.key = ec_key()
        self.file = folder / "jwks.json"
        write_jwks(self.file, jwk(self.key, kid="first"))
        self.settings = JwtSettings(ISSUER, AUDIENCE, str(self.file))

    def sign(self, role: object = "read", key: Any = None, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A JWT that is valid for an hour, unless claims say otherwise; None leaves a claim out."""
        now = int(time.time())
        whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 3_600, "role": role} | claims
        present = {name: value for name, value in whole.items() if value is not None}
        signer = key or self.key
        algorithm = "RS256" if isinstance(signer, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(present, signer, algorithm, {"kid": "first"} if headers is None else headers)
