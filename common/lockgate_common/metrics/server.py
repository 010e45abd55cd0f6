"""A separate HTTP port for a process's page of metrics: `GET /metrics`, for callers that may read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lockgate_common.http.callers import HttpCallers, UnknownCaller
from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.http.server import HttpServer
from lockgate_common.http.shield import Receive, Scope, Send
from lockgate_common.metrics.page import MetricsPage
from lockgate_common.roles import Role
from lockgate_common.security import Credentials
from lockgate_common.settings import OFF
from lockgate_common.token import Token
from lockgate_common.token_book import TokenBook

PATH = "/metrics"


class MetricsServer:
    """Open from the start, answers from `start` on.

    bind, setting: see HttpServer, whose errors it raises; tokens_file: see TokenBook, "" for no tokens.
    """

    def __init__(self, page: MetricsPage, bind: str, credentials: Credentials, setting: str, tokens_file: str) -> None:
        self._page = page
        secret = credentials.secret
        self._tokens = TokenBook(Path(tokens_file), secret) if secret and tokens_file else None
        self._server = HttpServer(self._serve, bind, credentials, setting)
        self._callers = HttpCallers(credentials, is_local=self._server.is_local)

    @property
    def address(self) -> str:
        """`host:port` as bound."""
        return self._server.address

    def start(self) -> None:
        """Returns at once."""
        self._server.start()

    def stop(self) -> None:
        """Closes the port. Idempotent."""
        self._server.stop()

    async def _serve(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            raise HttpRefusal(404, f"there is only {PATH} here")
        if scope["method"] not in ("GET", "HEAD"):
            raise HttpRefusal(405, f"{PATH} is read with GET")
        async with self._callers.slowed(scope):
            await asyncio.to_thread(self._check, scope)
        content_type, body = await asyncio.to_thread(self._page.render)
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    def _check(self, scope: Scope) -> None:
        """Raises HttpRefusal for a caller that may not read."""
        caller = self._callers.caller(scope)
        if caller.is_owner:
            return
        if not isinstance(caller.token, Token):
            raise HttpRefusal(401, "metrics need a token of the cluster; JWTs are not accepted here")
        principal = self._tokens.principal(caller.token) if self._tokens is not None else None
        if principal is None:
            raise UnknownCaller
        if refusal := principal.refusal(Role.READ):
            raise HttpRefusal(403, refusal)


def metrics_server(
    page: MetricsPage, bind: str, credentials: Credentials, role: str, tokens_file: str
) -> MetricsServer | None:
    """The server of a process, as its setting says; None for none. Raises as MetricsServer."""
    if bind in ("", OFF):
        return None
    return MetricsServer(page, bind, credentials, f"{role}.metrics", tokens_file)
