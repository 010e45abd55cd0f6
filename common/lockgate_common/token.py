"""A token: what a caller has in place of the cluster's secret, with fewer rights.

`lockgate.<id>.<random>.<check>`. The cluster keeps a hash of the random part. The check is made from the cluster's
secret and the id: by it a server recognises its own tokens without the slow hash, so that no stranger can make it work
hard, and a client recognises its cluster. It takes the secret's place in the handshake of `proof`, and the random part
travels sealed with a key that only the two of them can make, for this one call.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from lockgate_common.keys import derived_key, mac
from lockgate_common.proof import AUTHORIZATION, SCHEME, Introduction, Peer, answer_to

RANDOM_BYTES = 32
_PREFIX = "lockgate"
_JWT = re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+", re.ASCII)
BEARER = "Bearer "


@dataclass(frozen=True, slots=True)
class Token:
    """token_id: public; random: RANDOM_BYTES in hexadecimal, of the holder alone; check: made by the cluster."""

    token_id: str
    random: str
    check: str

    def __str__(self) -> str:
        return ".".join((_PREFIX, self.token_id, self.random, self.check))

    def is_of(self, secret: str) -> bool:
        """True for a token of the cluster that has this secret. Constant time."""
        return bool(secret) and hmac.compare_digest(self.check.encode(), check_of(secret, self.token_id).encode())


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A token of this cluster, still to be looked up. greeting: initial metadata of the answer."""

    token: Token
    greeting: tuple[tuple[str, str], ...]


class TokenIntroduction(Introduction):
    """As an introduction with the secret; what the server has to prove is that it can make the token's check."""

    def __init__(self, token: Token, peer: Peer, method: str) -> None:
        super().__init__(token.check, peer, method)
        self._token = token

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Call metadata."""
        ((name, value),) = super().metadata
        pad = _pad(self._token.check, self._peer, self._method, self._nonce)
        sealed = _xor(bytes.fromhex(self._token.random), pad).hex()
        return ((name, f"{value}.{self._token.token_id}.{sealed}"),)


@dataclass(frozen=True, slots=True)
class Jwt:
    """A JWT of an issuer that the cluster trusts. It is shown as it is, so only to a server with a certificate."""

    text: str = field(repr=False)


class JwtIntroduction(Introduction):
    """A call with a JWT. The server proves nothing by it: that is the matter of TLS."""

    def __init__(self, shown: Jwt, peer: Peer, method: str) -> None:
        super().__init__("", peer, method)
        self._shown = shown

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Call metadata."""
        return ((AUTHORIZATION, f"{BEARER}{self._shown.text}"),)

    def check(self, initial_metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
        """Nothing."""


def parse_jwt(text: str) -> Jwt | None:
    """None for what does not look like one."""
    return Jwt(text.strip()) if _JWT.fullmatch(text.strip()) else None


def parse_token(text: str) -> Token | None:
    """None for what is no token."""
    prefix, *parts = text.strip().split(".")
    if prefix != _PREFIX or len(parts) != 3 or not all(part.isascii() and part.isalnum() for part in parts):
        return None
    return Token(*parts) if _is_random(parts[1]) else None


def presented_token(secret: str, me: Peer, method: str, authorization: str) -> PresentedToken | None:
    """The server's side: the token of its cluster that a caller shows or proves to have; None for none.

    authorization: the call's metadata of that name; `Bearer <token>` is for clients of other languages.
    """
    if authorization.startswith(BEARER):
        token = parse_token(authorization.removeprefix(BEARER))
        return PresentedToken(token, ()) if token is not None and token.is_of(secret) else None
    parts = authorization.removeprefix(SCHEME).split(".")
    if not secret or not authorization.startswith(SCHEME) or len(parts) != 4 or not _is_random(parts[3]):
        return None
    nonce, proof, token_id, sealed = parts
    check = check_of(secret, token_id)
    greeting = answer_to(check, me, method, f"{SCHEME}{nonce}.{proof}")
    if greeting is None:
        return None
    random = _xor(bytes.fromhex(sealed), _pad(check, me, method, nonce)).hex()
    return PresentedToken(Token(token_id, random, check), greeting)


def check_of(secret: str, token_id: str) -> str:
    """The check of a token, in hexadecimal."""
    return mac(derived_key(secret, "token check"), token_id.encode()).hex()


def authorization_of(metadata: tuple[tuple[str, str | bytes], ...]) -> str:
    """The call's metadata of that name, "" for none."""
    presented = next((value for key, value in metadata if key == AUTHORIZATION), "")
    return presented if isinstance(presented, str) else presented.decode("utf-8", "replace")


def _pad(check: str, server: Peer, method: str, nonce: str) -> bytes:
    fields = (server.address, server.instance, method, nonce)
    return mac(derived_key(check, "token seal"), *(field.encode() for field in fields))


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(mine ^ other for mine, other in zip(left, right, strict=True))


def _is_random(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) == RANDOM_BYTES
    except ValueError:
        return False
