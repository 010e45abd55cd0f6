"""Who calls by HTTP: the process's own Unix user, or who shows the cluster's secret, a token or a JWT."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie

from lockgate_common.addresses import is_loopback, network_of
from lockgate_common.http.login_cookie import LoginCookie
from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.http.shield import SOCKET, Scope, header
from lockgate_common.http.socket_owner import is_own_user
from lockgate_common.proof import AUTHORIZATION
from lockgate_common.security import Credentials, SecurityError
from lockgate_common.serving.refusals import TooMuch
from lockgate_common.serving.wrong_tries import WrongTries
from lockgate_common.token import BEARER, Jwt, Token, parse_jwt, parse_token

UNKNOWN = "this needs a token: send it as the header Authorization: Bearer TOKEN, or log in"
_FORWARDED = ("forwarded", "x-forwarded-for", "via", "x-real-ip")


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """credentials: with which the cluster is called for this caller, the process's own for its owner.

    A token or JWT has still to be looked up by the user of this class.
    """

    credentials: Credentials
    is_owner: bool
    peer: str

    @property
    def token(self) -> Token | Jwt | None:
        """What was shown; None for the owner."""
        return self.credentials.token


class UnknownCaller(HttpRefusal):
    """What was shown is not valid."""

    def __init__(self) -> None:
        super().__init__(401, UNKNOWN)


class HttpCallers:
    """Of one server. credentials: the process's; is_local: it is reached from this machine alone."""

    def __init__(self, credentials: Credentials, *, is_local: bool) -> None:
        self._credentials = credentials
        self._is_local = is_local
        self._wrong = WrongTries()
        self.cookie = LoginCookie(credentials.secret, is_secure=credentials.tls is not None)

    def caller(self, scope: Scope) -> HttpCaller:
        """Of one request. What it shows counts more than whose it is. Raises HttpRefusal."""
        peer = _shown(scope["client"])
        authorization = header(scope, AUTHORIZATION)
        if authorization:
            if self._credentials.admits(((AUTHORIZATION, authorization),)):
                return HttpCaller(self._credentials, True, peer)
            return self._bearer(authorization.removeprefix(BEARER), peer)
        if text := self.cookie.opened(_cookie(scope, self.cookie.name)):
            return self._bearer(text, peer)
        if self._is_local and _is_direct(scope) and is_own_user(scope["state"][SOCKET]):
            return HttpCaller(self._credentials, True, peer)
        raise HttpRefusal(401, UNKNOWN)

    @asynccontextmanager
    async def slowed(self, scope: Scope) -> AsyncIterator[None]:
        """Around the look-up of a caller, on the server's loop: wrong credentials are answered later each time.

        Raises HttpRefusal, also in place of UnknownCaller where too many of one address wait.
        """
        try:
            yield
        except UnknownCaller:
            try:
                await self._wrong.wait(network_of((scope["client"] or ("unknown",))[0]))
            except TooMuch as error:
                raise HttpRefusal(429, str(error)) from None
            raise

    def with_token(self, text: str, scope: Scope) -> HttpCaller:
        """Who logs in with this. Raises HttpRefusal."""
        if self._credentials.admits(((AUTHORIZATION, f"{BEARER}{text}"),)):
            raise HttpRefusal(401, "log in with a token, which can be revoked; `lockgate tokens create` makes one")
        return self._bearer(text, _shown(scope["client"]))

    def _bearer(self, text: str, peer: str) -> HttpCaller:
        token = parse_token(text) or parse_jwt(text)
        if token is None:
            raise UnknownCaller
        try:
            return HttpCaller(replace(self._credentials, secret="", token=token), False, peer)
        except SecurityError as error:
            raise HttpRefusal(401, str(error)) from error


def _is_direct(scope: Scope) -> bool:
    """False for what a proxy has passed on: its socket does not identify the caller."""
    names = {name.decode("latin-1") for name, _ in scope["headers"]}
    ends = (scope["client"], scope["server"])
    return not names.intersection(_FORWARDED) and all(end is not None and is_loopback(_shown(end)) for end in ends)


def _cookie(scope: Scope, name: str) -> str:
    try:
        found = SimpleCookie(header(scope, "cookie")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _shown(end: tuple[str, int] | None) -> str:
    if end is None:
        return "unknown"
    host, port = end
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
