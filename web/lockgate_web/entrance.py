"""Whose request this is. What the caller may do is decided by the job API, which gets the caller's own credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from lockgate_common.http.callers import HttpCaller, HttpCallers, UnknownCaller
from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.http.shield import Scope
from lockgate_common.proof import AUTHORIZATION, Peer
from lockgate_common.roles import OWNER, Principal
from lockgate_common.token import BEARER, Jwt
from lockgate_coordinator.runtime.callers import Callers

_NOWHERE = Peer("", "")  # nothing is proved here: tokens are shown


@dataclass(frozen=True, slots=True)
class Visitor:
    """A caller who is known. principal: for display and the audit log."""

    caller: HttpCaller
    principal: Principal


class WebEntrance:
    """On the server's loop only. asking: where callers are looked up, which reads files."""

    def __init__(self, http_callers: HttpCallers, callers: Callers, asking: Executor) -> None:
        self._http_callers = http_callers
        self._callers = callers
        self._asking = asking

    async def visitor(self, scope: Scope) -> Visitor:
        """Who asks. Raises HttpRefusal."""
        async with self._http_callers.slowed(scope):
            return await self._looked_up(self._http_callers.caller, scope)

    async def login(self, text: str, scope: Scope) -> tuple[Visitor, str]:
        """Who logs in with a token, and the cookie for that. Raises HttpRefusal."""
        async with self._http_callers.slowed(scope):
            visitor = await self._looked_up(self._http_callers.with_token, text, scope)
        try:
            return visitor, self._http_callers.cookie.header(text.strip())
        except ValueError as error:
            raise HttpRefusal(400, str(error)) from error

    @property
    def logout(self) -> str:
        """The cookie that takes a login back."""
        return self._http_callers.cookie.header("")

    async def _looked_up(self, caller: Callable[..., HttpCaller], *arguments: Any) -> Visitor:
        return await asyncio.get_running_loop().run_in_executor(self._asking, lambda: self._known(caller(*arguments)))

    def _known(self, caller: HttpCaller) -> Visitor:
        if caller.is_owner:
            return Visitor(caller, OWNER)
        token = caller.token
        shown = token.text if isinstance(token, Jwt) else str(token)
        found = self._callers.admission(_NOWHERE, "", ((AUTHORIZATION, f"{BEARER}{shown}"),))
        if found is None:
            raise UnknownCaller
        return Visitor(caller, found.caller)
