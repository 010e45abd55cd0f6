"""The ASGI app of a dashboard. Imported at the first connection."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, contextmanager
from http import HTTPStatus
from typing import Any

from lockgate_common.http.callers import HttpCallers
from lockgate_common.http.refusal import HttpRefusal, error_body
from lockgate_common.http.shield import INTERNAL, Receive, Scope, Send, own_origin
from lockgate_common.roles import Role
from lockgate_coordinator.runtime.audit import AuditedCall
from lockgate_coordinator.runtime.callers import Callers
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lockgate.client import ClientError
from lockgate.json_shapes import Json
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

_CALLS = 16  # at once, of the cluster: without a leader each takes its time
ORDERS = 16  # the same that change a job: each may wait for a snapshot, with no limit but the job's
_LOOK_UPS = 8  # of callers, at once
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
        self._others, self._metrics, self._passes, self._cluster = others, metrics, passes, settings.cluster
        self._clients = Clients(address)
        self._calls = ThreadPoolExecutor(_CALLS, thread_name_prefix="dashboard-call")
        self._orders = ThreadPoolExecutor(ORDERS, thread_name_prefix="dashboard-order")
        self._free_orders = threading.Semaphore(ORDERS)  # given back by the thread: a caller may have gone
        self._look_ups = ThreadPoolExecutor(_LOOK_UPS, thread_name_prefix="dashboard-look-up")
        self._measuring = ThreadPoolExecutor(1, thread_name_prefix="dashboard-metrics")  # waits for other threads
        self._threads = ThreadPoolExecutor(_STREAMS, thread_name_prefix="dashboard-stream")
        self._streams = 0
        self._entrance = WebEntrance(HttpCallers(settings.credentials, is_local=is_local), callers, self._look_ups)
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
            exception_handlers={HttpRefusal: _refused, HTTPException: _not_found, Exception: _failed},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI wants it."""
        await self._starlette(scope, receive, send)

    def close(self) -> None:
        """Ends what is under way."""
        self._clients.close()
        for pool in (self._calls, self._orders, self._look_ups, self._measuring, self._threads):
            pool.shutdown(wait=False, cancel_futures=True)

    def _handler(self, endpoint: Endpoint) -> Handler:
        return functools.partial(self._stream if endpoint.is_stream else self._answer, endpoint)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        visitor = await self._entrance.visitor(request.scope)
        body = read_body(endpoint.body, await request.body()) if endpoint.body is not None else None
        method = f"/lockgate.v1.JobService/{endpoint.rpc}"
        audited = AuditedCall(method, visitor.principal, f"http:{visitor.caller.peer}")
        audited.begin(request.path_params.get("key", ""))
        outcome = HTTPStatus.INTERNAL_SERVER_ERROR.name
        try:
            run = functools.partial(self._run, endpoint, visitor, request, body)
            found = await self._on_thread(run, is_order=endpoint.method != "GET")
            outcome = HTTPStatus.OK.name
            return _json(found)
        except HttpRefusal as refusal:
            outcome = HTTPStatus(refusal.status).name
            raise
        except asyncio.CancelledError:  # what was asked for may be done
            outcome = "CANCELLED"
            raise
        finally:
            audited.end(outcome)

    async def _on_thread(self, run: Callable[[], Any], *, is_order: bool) -> Any:
        """Raises HttpRefusal when too many orders are waiting."""
        loop = asyncio.get_running_loop()
        if not is_order:
            return await loop.run_in_executor(self._calls, run)
        if not self._free_orders.acquire(blocking=False):
            raise HttpRefusal(
                503,
                f"{ORDERS} requests to change jobs wait at this dashboard; try again later, or use the command line",
            )
        done = self._orders.submit(run)
        done.add_done_callback(lambda _: self._free_orders.release())
        return await asyncio.wrap_future(done)

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
        with ExitStack() as taken:
            taken.enter_context(self._one_stream())
            held = taken.enter_context(self._clients.using(visitor.caller.credentials))
            asked = Asked(visitor, held, request.path_params, request.query_params)
            if "key" not in request.path_params:
                return _Stream(overview_events(asked, self._reads.overview, self._threads), taken.pop_all())
            # says 403 and 404 at once
            check = next(known for known in self.table if known.path == endpoint.path.removesuffix("/events"))
            await asyncio.get_running_loop().run_in_executor(self._calls, self._run, check, visitor, request, None)
            return _Stream(job_events(asked, self._threads), taken.pop_all())

    @contextmanager
    def _one_stream(self) -> Iterator[None]:
        """Raises HttpRefusal when there are too many."""
        if self._streams >= _STREAMS:
            raise HttpRefusal(503, "too many pages are open at this dashboard now; try again later")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _measured(self, request: Request) -> Response:
        visitor = await self._entrance.visitor(request.scope)
        if refusal := visitor.principal.refusal(Role.READ):
            raise HttpRefusal(403, refusal)
        content_type, text = await asyncio.get_running_loop().run_in_executor(self._measuring, self._metrics)
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
            "cluster": self._cluster,
        }


class _Stream(StreamingResponse):
    """taken: what the events rest on; given back however the answer ends, even before its first event."""

    def __init__(self, events: AsyncGenerator[str], taken: ExitStack) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._events, self._taken = events, taken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._taken:
            async with aclosing(self._events):
                await super().__call__(scope, receive, send)


async def _healthy(_request: Request) -> Response:
    return _json({})


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpRefusal)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return Response(error_body(str(error)), error.status, headers, "application/json")


async def _not_found(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = "there is no such path" if error.status_code == 404 else "this path does not have this method"
    return Response(error_body(sentence), error.status_code, error.headers, "application/json")


async def _failed(_request: Request, _error: Exception) -> Response:
    """Starlette raises the error again, and the shield logs it."""
    return Response(error_body(INTERNAL), 500, media_type="application/json")


def _json(value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(value, indent=2) + "\n", 200, headers, "application/json")
