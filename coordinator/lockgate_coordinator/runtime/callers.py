"""Who a call is from, by what it shows in place of the cluster's secret."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockgate_common.proof import Peer
from lockgate_common.roles import ANONYMOUS, Principal
from lockgate_common.security import Metadata
from lockgate_common.token import BEARER, authorization_of, shown_token
from lockgate_common.token_book import TokenBook

from lockgate_coordinator.runtime.jwt_issuer import JwtIssuer
from lockgate_coordinator.runtime.settings import CoordinatorSettings


@dataclass(frozen=True, slots=True)
class Admission:
    """Who calls. greeting: initial metadata of the answer."""

    caller: Principal = ANONYMOUS
    greeting: tuple[tuple[str, str], ...] = ()


class Callers:
    """Everybody who is let in without the secret. Each kind of evidence is one method, tried in turn. Thread-safe."""

    def __init__(self, secret: str = "", tokens: TokenBook | None = None, issuer: JwtIssuer | None = None) -> None:
        self._secret = secret
        self._tokens = tokens
        self._issuer = issuer

    @classmethod
    def of(cls, settings: CoordinatorSettings) -> Callers:
        """Those that the settings name. Raises SettingsError."""
        secret, file = settings.credentials.secret, settings.tokens_file
        tokens = TokenBook(Path(file), secret) if secret and file else None
        return cls(secret, tokens, JwtIssuer(settings.jwt) if settings.jwt else None)

    def admission(self, me: Peer, method: str, metadata: Metadata) -> Admission | None:
        """Of a call to this process; None when it shows nothing that is valid now. Blocks, some 50 ms at most."""
        authorization = authorization_of(metadata)
        return self._with_token(me, method, authorization) or self._with_jwt(authorization)

    def _with_token(self, me: Peer, method: str, authorization: str) -> Admission | None:
        if self._tokens is None:
            return None
        shown = shown_token(self._secret, me, method, authorization)
        caller = self._tokens.principal(shown.token) if shown is not None else None
        return Admission(caller, shown.greeting) if shown is not None and caller is not None else None

    def _with_jwt(self, authorization: str) -> Admission | None:
        if self._issuer is None or not authorization.startswith(BEARER):
            return None
        caller = self._issuer.principal(authorization.removeprefix(BEARER))
        return Admission(caller) if caller is not None else None
