"""The ASGI app of a dashboard. Imported when somebody connects for the first time."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockgate_common.http.callers import HttpCallers
from lockgate_common.http.refusal import HttpRefusal, error_body
from lockgate_common.http.shield import Receive, Scope, Send, own_origin
from lockgate_common.roles import Role
from lockgate_coordinator.runtime.callers import Callers
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lockgate.client import ClientError
from lockgate.shapes import Json
from lockgate_web.asked import Asked, LoginBody, read_body
from lockgate_web.clients import Clients
from lockgate_web.endpoints import API, Endpoint, endpoints
from lockgate_web.entrance import Visitor, WebEntrance
from lockgate_web.openapi import description
from lockgate_web.origin_pass import OriginPasses
from lockgate_web.pages import Pages
from lockgate_web.reads import Reads
from lockgate_web.status_codes import refusal_of
from lockgate_web.streams import job_events, overview_events

audit = logging.getLogger("lockgate.audit")

_CALLS = 16  # at once
_STREAMS = 32
Handler = Callable[[Request], Awaitable[Response]]


class WebApp:
    """address: of the coordinator's job API; others: URLs of the other coordinators' dashboards; metrics: the page."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        address: str,
        callers: Callers,
        others: Callable[[], tuple[str, ...]],
        metrics: Callable[[], tuple[str, bytes]],
        passes: OriginPasses,
        is_local: bool,
    ) -> None:
        self._others, self._metrics, self._passes = others, metrics, passes
        self._clients = Clients(address)
        self._calls = ThreadPoolExecutor(_CALLS, thread_name_prefix="dashboard-call")
        self._threads = ThreadPoolExecutor(_STREAMS, thread_name_prefix="dashboard-stream")
        self._streams = 0
        self._entrance = WebEntrance(HttpCallers(settings.credentials, is_local=is_local), callers, self._calls)
        self._reads = Reads(settings.cluster, settings.zookeeper)
        self.table = endpoints(self._reads)
        own: dict[str, Handler] = {
            f"{API}/session": self._session,
            f"{API}/login": self._login,
            f"{API}/logout": self._logout,
            f"{API}/openapi.json": self._describe,
        }
        routes = [
            Route(endpoint.path, own.get(endpoint.path) or self._handler(endpoint), methods=[endpoint.method])
            for endpoint in self.table
        ]
        self._starlette = Starlette(
            routes=[*routes, Route("/healthz", _healthy), Route("/metrics", self._measured), *Pages(others).routes()],
            exception_handlers={HttpRefusal: _refused, HTTPException: _not_found},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI wants it."""
        await self._starlette(scope, receive, send)

    def close(self) -> None:
        """Ends what is under way."""
        self._clients.close()
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _handler(self, endpoint: Endpoint) -> Handler:
        return functools.partial(self._stream if endpoint.is_stream else self._answer, endpoint)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        visitor = await self._entrance.visitor(request.scope)
        body = read_body(endpoint.body, await request.body()) if endpoint.body is not None else None
        outcome = "ok"
        try:
            loop = asyncio.get_running_loop()
            return _json(await loop.run_in_executor(self._calls, self._run, endpoint, visitor, request, body))
        except HttpRefusal as refusal:
            outcome = str(refusal.status)
            raise
        finally:
            if endpoint.method != "GET":
                name, key = endpoint.rpc, ascii(request.path_params["key"])
                by = ascii(visitor.principal.name)
                audit.info("%s job=%s by=%s from=http:%s: %s", name, key, by, visitor.caller.peer, outcome)

    def _run(self, endpoint: Endpoint, visitor: Visitor, request: Request, body: Any) -> Any:
        """On a thread. Raises HttpRefusal."""
        assert endpoint.handle is not None
        try:
            with self._clients.using(visitor.caller.credentials) as held:
                return endpoint.handle(Asked(visitor, held, request.path_params, request.query_params, body))
        except ClientError as error:
            raise refusal_of(error) from error

    async def _stream(self, endpoint: Endpoint, request: Request) -> Response:
        visitor = await self._entrance.visitor(request.scope)
        if self._streams >= _STREAMS:
            raise HttpRefusal(503, "too many pages are open at this dashboard now; try again later")
        if "key" in request.path_params:  # says 403 and 404 at once
            check = next(known for known in self.table if known.path == endpoint.path.removesuffix("/events"))
            await asyncio.get_running_loop().run_in_executor(self._calls, self._run, check, visitor, request, None)
        return StreamingResponse(self._events(visitor, request), media_type="text/event-stream")

    async def _events(self, visitor: Visitor, request: Request) -> AsyncIterator[str]:
        self._streams += 1
        try:
            with self._clients.using(visitor.caller.credentials) as held:
                asked = Asked(visitor, held, request.path_params, request.query_params)
                if "key" in request.path_params:
                    found = job_events(asked, self._threads)
                else:
                    found = overview_events(asked, self._reads.overview, self._calls)
                async for text in found:
                    yield text
        finally:
            self._streams -= 1

    async def _measured(self, request: Request) -> Response:
        visitor = await self._entrance.visitor(request.scope)
        if not visitor.principal.may(Role.READ):
            raise HttpRefusal(403, f"this needs the role read, which {visitor.principal.name} does not have")
        content_type, text = await asyncio.get_running_loop().run_in_executor(self._calls, self._metrics)
        return Response(text, 200, {"Content-Type": content_type})

    async def _session(self, request: Request) -> Response:
        return _json(self._session_json(await self._entrance.visitor(request.scope), request))

    async def _login(self, request: Request) -> Response:
        body = read_body(LoginBody, await request.body())
        visitor, cookie = await self._entrance.login(body.token, request.scope)
        return _json(self._session_json(visitor, request), {"Set-Cookie": cookie})

    async def _logout(self, _request: Request) -> Response:
        return _json({}, {"Set-Cookie": self._entrance.logout})

    async def _describe(self, _request: Request) -> Response:
        return _json(description(self.table))

    def _session_json(self, visitor: Visitor, request: Request) -> Json:
        return {
            "name": visitor.principal.name,
            "roles": sorted(role.value for role in visitor.principal.roles),
            "owner": visitor.caller.is_owner,
            "pass": self._passes.of(own_origin(request.scope)),
            "dashboards": list(self._others()),
        }


async def _healthy(_request: Request) -> Response:
    return _json({})


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpRefusal)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return Response(error_body(str(error)), error.status, headers, "application/json")


async def _not_found(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = "there is no such path" if error.status_code == 404 else "this path has other methods"
    return Response(error_body(sentence), error.status_code, error.headers, "application/json")


def _json(value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(value, indent=2) + "\n", 200, headers, "application/json")
