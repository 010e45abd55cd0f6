"""What every request passes before an app sees it: the host's name, forged requests, sizes and times."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from lockgate_common.http.hosts import host_name, is_called_so
from lockgate_common.http.refusal import HttpRefusal, error_body

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SOCKET = "socket"
"""In the `state` of a scope: the connection over which the request came."""
INTERNAL = "internal error; see the log of this process"
MAX_BODY_BYTES = 64 * 1024
_BODY_S = 10.0
_SEND_S = 20.0  # for a client that does not read what it has asked for
_READS = ("GET", "HEAD", "OPTIONS")
_NO_PAGES = ("/api/", "/metrics/")
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}
"""Of every answer; an app may set others in their place."""


def header(scope: Scope, name: str) -> str:
    """A request's header; "" for none. Several of one name count as none."""
    found = [value for key, value in scope["headers"] if key == name.encode()]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def own_origin(scope: Scope) -> str:
    """What a browser calls the site that was asked."""
    return f"{scope['scheme']}://{header(scope, 'host')}".lower()


def _is_visit(scope: Scope) -> bool:
    """Whether a browser follows a link to a page: it sends no `Origin` then, and none for an image of another page."""
    return header(scope, "sec-fetch-mode") == "navigate" and not f"{scope['path']}/".startswith(_NO_PAGES)


def no_other_site(_scope: Scope) -> bool:
    """False for the page of any other site."""
    return False


class Shield:
    """An ASGI app around another one.

    names: under which the server may be called; may_read: whether the page of another site, which the request's
    `Origin` names, may read the answer.
    """

    def __init__(
        self,
        app: App,
        names: Callable[[], Collection[str]],
        may_read: Callable[[Scope], bool] = no_other_site,
    ) -> None:
        self._app = app
        self._names = names
        self._may_read = may_read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shared_with = self._shared_with(scope)
        answer = _Answer(send, shared_with)
        try:
            self._check(scope, shared_with)
            if header(scope, "origin") and scope["method"] == "OPTIONS":
                return await answer.preflight()
            async with asyncio.timeout(_BODY_S):
                body = await _body(receive)
            await self._app(scope, _received(body, receive), answer.send)
        except HttpRefusal as refusal:
            await answer.refuse(refusal.status, str(refusal))
        except TimeoutError:
            await answer.refuse(408, "the request took too long")
        except asyncio.CancelledError:  # the server stops
            await answer.end()
        except (ConnectionError, ClientGone):
            pass
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await answer.refuse(500, INTERNAL)

    def _shared_with(self, scope: Scope) -> str:
        origin = header(scope, "origin").lower()
        return origin if origin and scope["method"] in _READS and self._may_read(scope) else ""

    def _check(self, scope: Scope, shared_with: str) -> None:
        """Raises HttpRefusal."""
        host, origin = header(scope, "host"), header(scope, "origin").lower()
        if not is_called_so(host_name(host), self._names()):
            raise HttpRefusal(421, f"this server is not {host[:100]!a}; use its address, or a name in its certificate")
        is_own = not origin or origin == own_origin(scope)
        is_wanted = shared_with or (is_own if origin else _is_visit(scope))
        if header(scope, "sec-fetch-site") == "cross-site" and not is_wanted:
            raise HttpRefusal(403, "this request comes from a page of another site")
        if scope["method"] in _READS:
            return
        if not is_own:
            raise HttpRefusal(403, "pages of other sites may not make changes here")
        if header(scope, "content-type").partition(";")[0].strip().lower() != "application/json":
            raise HttpRefusal(415, "send JSON, with the header Content-Type: application/json")


class ClientGone(Exception):
    """The client has ended the connection before its request was whole."""


async def _body(receive: Receive) -> bytes:
    """Raises HttpRefusal, ClientGone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise HttpRefusal(413, f"the request has more than {MAX_BODY_BYTES:,} bytes")
        if not message.get("more_body"):
            return bytes(body)


def _received(body: bytes, receive: Receive) -> Receive:
    """The whole body at once, then whatever comes: the end of the connection."""
    first = True

    async def read() -> Message:
        nonlocal first
        if not first:
            return await receive()
        first = False
        return {"type": "http.request", "body": body, "more_body": False}

    return read


class _Answer:
    """What is sent. shared_with: the other site that may read it, "" for none."""

    def __init__(self, send: Send, shared_with: str) -> None:
        self._send = send
        self._shared_with = shared_with
        self._started = self._ended = False

    async def send(self, message: Message) -> None:
        """One message of the app. Raises TimeoutError when the client does not read."""
        if message["type"] == "http.response.start":
            self._started = True
            message = {**message, "headers": self._completed(message.get("headers", ()))}
        elif not message.get("more_body"):
            self._ended = True
        async with asyncio.timeout(_SEND_S):
            await self._send(message)

    async def refuse(self, status: int, sentence: str) -> None:
        """An error as JSON. Once an answer has begun, only the end of the connection can say it."""
        if self._started:
            return
        body = error_body(sentence)
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", str(len(body)).encode()))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def preflight(self) -> None:
        """Whether another site may send its own headers with a read request."""
        allowed = [(b"access-control-allow-headers", b"authorization"), (b"access-control-allow-methods", b"GET")]
        headers = allowed if self._shared_with else []
        await self.send({"type": "http.response.start", "status": 204, "headers": headers})
        await self.send({"type": "http.response.body"})

    async def end(self) -> None:
        """Of a stream that was cut off on purpose."""
        if self._started and not self._ended:
            await self.send({"type": "http.response.body"})
        elif not self._started:
            await self.refuse(503, "this process is stopping")

    def _completed(self, headers: Collection[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        given = {name.lower() for name, _ in headers}
        added = [(name, value) for name, value in _HEADERS.items() if name not in given]
        if self._shared_with:
            added = [(name, value) for name, value in added if name != b"cross-origin-resource-policy"]
            added += [
                (b"access-control-allow-origin", self._shared_with.encode()),
                (b"access-control-allow-credentials", b"true"),
                (b"vary", b"origin"),
            ]
        return [*headers, *added]
