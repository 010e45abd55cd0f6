"""JWTs of an issuer outside the cluster, in place of tokens: the only module that imports PyJWT.

Its keys come out of a file that its operator provides; nothing is fetched. Who may bring code or end jobs is decided by
a claim, so a JWT has to be made for this cluster (`aud`) and has to end (`exp`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lockgate_common.json_input import parse_json
from lockgate_common.reread import RereadFile
from lockgate_common.roles import Principal, Role
from lockgate_common.settings import SettingsError
from lockgate_common.trusted_files import UntrustedFile, read_trusted

from lockgate_coordinator.runtime.settings import JwtSettings

_SKEW_S = 30  # by which the issuer's clock may be ahead
_MOST_KEYS = 100
_LEAST_RSA_BITS = 2_048
_LONGEST_SUBJECT = 200  # as it is shown
_REQUIRED = ("exp", "iss", "aud", "sub")


class KeyFileError(ValueError):
    """The file of keys cannot be used. The message is a sentence for its owner."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """One public key. key_id, algorithm: "" where the file does not say; public: of cryptography."""

    key_id: str
    algorithm: str
    public: Any

    def fits(self, header: Mapping[str, Any]) -> bool:
        """True when the header of a JWT admits that it was signed with this key."""
        key_id, algorithm = header.get("kid", ""), header.get("alg")
        return (not self.key_id or not key_id or self.key_id == key_id) and self.algorithm in ("", algorithm)


class JwtIssuer:
    """What a server knows of an issuer. Thread-safe. now_s: the wall clock."""

    def __init__(self, settings: JwtSettings, now_s: Callable[[], float] = time.time) -> None:
        """Raises SettingsError when the package is missing, or the keys cannot be used."""
        self._jwt = _package()
        self._settings, self._now_s = settings, now_s
        self._roles = {value: Role(name) for value, name in settings.roles.items()} or {
            role.value: role for role in Role
        }
        path = Path(settings.keys)
        try:
            read_keys(path)
        except KeyFileError as error:
            raise SettingsError(f"jwt.keys: {error}") from error
        self._lock = threading.Lock()
        self._file = RereadFile[tuple[IssuerKey, ...]](path, read_keys, (), "no JWT is accepted")

    def principal(self, text: str) -> Principal | None:
        """Whom a JWT lets in; None for what is not one of this issuer, or not valid now."""
        try:
            claims = self._claims(text)
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError):  # a stranger's text
            return None
        return None if claims is None or not self._is_now(claims) else self._named(claims)

    def _claims(self, text: str) -> dict[str, Any] | None:
        """Of a JWT whose signature, issuer and audience are right."""
        header = self._jwt.get_unverified_header(text)
        if header.get("alg") not in self._settings.algorithms or "crit" in header:
            return None
        with self._lock:
            keys = self._file.content()
        for key in keys:
            if key.fits(header):
                try:
                    return self._decoded(text, key)
                except (self._jwt.InvalidSignatureError, self._jwt.InvalidKeyError, TypeError):
                    continue  # of another key, or of another kind of key
        return None

    def _decoded(self, text: str, key: IssuerKey) -> dict[str, Any]:
        claims: dict[str, Any] = self._jwt.decode(
            text,
            key.public,
            algorithms=list(self._settings.algorithms),
            issuer=self._settings.issuer,
            audience=self._settings.audience,
            options={"require": list(_REQUIRED), "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
        return claims

    def _is_now(self, claims: Mapping[str, Any]) -> bool:
        ends, begins, now = claims["exp"], claims.get("nbf", 0), self._now_s()
        numbers = all(isinstance(number, int | float) and math.isfinite(number) for number in (ends, begins))
        return numbers and begins - _SKEW_S <= now < ends

    def _named(self, claims: Mapping[str, Any]) -> Principal | None:
        """With the roles that are known here; None when there is none."""
        claim = claims.get(self._settings.role_claim)
        values = claim if isinstance(claim, list) else [claim]
        roles = frozenset(self._roles[value] for value in values if isinstance(value, str) and value in self._roles)
        name = f"{claims['sub'][:_LONGEST_SUBJECT]} of {self._settings.issuer}"
        return Principal(name, roles) if roles and claims["sub"] else None


def read_keys(path: Path) -> tuple[IssuerKey, ...]:
    """The public keys of a JWKS file, or the one of a PEM file. Raises KeyFileError."""
    try:
        text = read_trusted(path)
        found = _of_jwks(text) if text.lstrip().startswith("{") else (_of_pem(text),)
    except UntrustedFile as error:
        raise KeyFileError(str(error)) from error
    except OSError as error:
        raise KeyFileError(f"cannot read the keys in {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise KeyFileError(f"{path} is not a file of public keys: {error}") from error
    if not found:
        raise KeyFileError(f"{path} has no key that can check a signature")
    return found


def _of_pem(text: str) -> IssuerKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        return IssuerKey("", "", _checked(load_pem_public_key(text.encode())))
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error


def _checked(public: Any) -> Any:
    """A key that can check signatures, and that is long enough. Raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if isinstance(public, rsa.RSAPublicKey) and public.key_size < _LEAST_RSA_BITS:
        raise ValueError(f"it has an RSA key of fewer than {_LEAST_RSA_BITS} bits")
    kinds = (rsa.RSAPublicKey, ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey, ed448.Ed448PublicKey)
    if not isinstance(public, kinds):
        raise ValueError("it has a key that cannot check signatures")
    return public


def _of_jwks(text: str) -> tuple[IssuerKey, ...]:
    """Keys for encryption and of unknown kinds are left out."""
    jwt = _package()
    listed = parse_json(text)["keys"]
    if len(listed) > _MOST_KEYS:
        raise ValueError(f"it has {len(listed)} keys; at most {_MOST_KEYS} are allowed")
    found = []
    for listed_key in listed:
        if listed_key.get("kty") == "oct" or "d" in listed_key:
            raise ValueError("it has a key that can sign; only public keys belong here")
        if listed_key.get("use", "sig") != "sig":
            continue
        with contextlib.suppress(jwt.PyJWTError):
            public = jwt.PyJWK(listed_key).key
            found.append(IssuerKey(str(listed_key.get("kid", "")), str(listed_key.get("alg", "")), _checked(public)))
    return tuple(found)


def _package() -> ModuleType:
    """PyJWT. Raises SettingsError with what to do when it, or cryptography, is missing."""
    if importlib.util.find_spec("jwt") is None or importlib.util.find_spec("cryptography") is None:
        raise SettingsError("jwt: JWTs need the package PyJWT on every coordinator: pip install 'lockgate[jwt]'")
    import jwt

    return jwt
