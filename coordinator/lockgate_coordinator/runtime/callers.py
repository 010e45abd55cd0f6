"""The callers without the cluster's secret: holders of a token, a JWT or a certificate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lockgate_common.proof import Peer
from lockgate_common.roles import ANONYMOUS, Principal, roles_named
from lockgate_common.security import Metadata
from lockgate_common.serving.calls import Call
from lockgate_common.token import BEARER, authorization_of, presented_token
from lockgate_common.token_book import TokenBook

from lockgate_coordinator.runtime.jwt_issuer import JwtIssuer
from lockgate_coordinator.runtime.settings import CoordinatorSettings


@dataclass(frozen=True, slots=True)
class Admission:
    """An authenticated caller. greeting: initial metadata of the answer."""

    caller: Principal = ANONYMOUS
    greeting: tuple[tuple[str, str], ...] = ()


class Callers:
    """Authenticates callers without the secret. Each kind of evidence is one method, tried in turn. Thread-safe."""

    def __init__(
        self,
        secret: str = "",
        tokens: TokenBook | None = None,
        issuer: JwtIssuer | None = None,
        certificate_roles: Mapping[str, tuple[str, ...]] | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """certificate_roles: by common or alternative name of a certificate; now_s: the wall clock."""
        self._now_s = now_s
        self._certificate_roles = certificate_roles or {}
        self._secret = secret
        self._tokens = tokens
        self._issuer = issuer

    @classmethod
    def of(cls, settings: CoordinatorSettings) -> Callers:
        """Those that the settings name. Raises SettingsError."""
        secret, file = settings.credentials.secret, settings.tokens_file
        tokens = TokenBook(Path(file), secret) if secret and file else None
        return cls(secret, tokens, JwtIssuer(settings.jwt) if settings.jwt else None, settings.certificate_roles)

    def with_certificate(self, call: Call) -> Admission | None:
        """Of a call whose connection has a valid certificate, and that shows nothing itself, which would count more."""
        holder = _certificate_holder(call, self._certificate_roles, self._now_s())
        return Admission(holder) if holder is not None else None

    def admission(self, me: Peer, method: str, metadata: Metadata) -> Admission | None:
        """Of a call to this process; None when it shows nothing that is valid now. Blocks, some 50 ms at most."""
        authorization = authorization_of(metadata)
        return self._with_token(me, method, authorization) or self._with_jwt(authorization)

    def _with_token(self, me: Peer, method: str, authorization: str) -> Admission | None:
        if self._tokens is None:
            return None
        presented = presented_token(self._secret, me, method, authorization)
        caller = self._tokens.principal(presented.token) if presented is not None else None
        return Admission(caller, presented.greeting) if presented is not None and caller is not None else None

    def _with_jwt(self, authorization: str) -> Admission | None:
        if self._issuer is None or not authorization.startswith(BEARER):
            return None
        caller = self._issuer.principal(authorization.removeprefix(BEARER))
        return Admission(caller) if caller is not None else None


def _certificate_holder(call: Call, roles: Mapping[str, tuple[str, ...]], now_s: float) -> Principal | None:
    """The holder of a certificate; it may do what the roles of all its names let it do.

    None without one, or when the call shows something itself, which counts more. roles: by common or alternative name;
    now_s: of the wall clock. The handshake has checked the rest, its end as well, but a connection may outlive that.
    """
    if authorization_of(call.metadata):
        return None
    names, pem = call.certificate
    if not names or now_s >= _end_s(pem):
        return None
    known = [name for name in names if name in roles]
    given = frozenset(role for name in known for role in roles_named(roles[name]))
    return Principal(f"certificate {(known or names)[0]}", given)


@lru_cache(maxsize=1_000)
def _end_s(certificate: bytes) -> float:
    from cryptography import x509  # takes long, and is needed with TLS alone

    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
