"""An HTTP server in a separate thread, with its own event loop.

Until the first connection, the thread only waits: uvicorn is not imported, so a process starts no later for its server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockgate_common.addresses import host_and_port, is_loopback
from lockgate_common.http.hosts import HostNames
from lockgate_common.http.server_context import server_context
from lockgate_common.http.shield import App, Scope, Shield, no_other_site
from lockgate_common.security import Credentials

if TYPE_CHECKING:
    from lockgate_common.http.connection import ServerState

log = logging.getLogger(__name__)

_BACKLOG = 128
_HANDSHAKE_S = 10.0
_STOP_S = 2.0


class HttpServer:
    """Serves one ASGI app. The port is opened at once, and answered from `start` on.

    bind: `host:port`, port 0 picks a free one; credentials: of the process, whose TLS files it uses, and without which
    it is not reached from other machines; setting: what names the address, for messages; may_read: see `Shield`.
    Raises SecurityError, and OSError with a sentence when the port is taken.
    """

    def __init__(
        self,
        app: App,
        bind: str,
        credentials: Credentials,
        setting: str,
        may_read: Callable[[Scope], bool] = no_other_site,
    ) -> None:
        credentials.check_reach(bind)
        self._tls = credentials.tls
        self._context: ssl.SSLContext | None = server_context(self._tls) if self._tls is not None else None
        self._socket = _listening(bind, setting)
        host, port = self._socket.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.is_local = is_loopback(self.address)
        self._app = Shield(app, HostNames(bind, self._tls).current, may_read)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=f"http-{setting}", daemon=True)

    @property
    def url(self) -> str:
        """Of the address that was bound."""
        return f"{'https' if self._tls is not None else 'http'}://{self.address}"

    def start(self) -> None:
        """Returns at once; callers wait until the thread is there."""
        self._thread.start()

    def stop(self) -> None:
        """Ends open streams, closes the port, joins the thread. Idempotent."""
        with self._lock:
            self._wake.close()
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # it has ended by itself
                    self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.ident is not None:
            self._thread.join()
        self._woken.close()
        self._socket.close()

    def _run(self) -> None:
        try:
            if self._woken not in select.select([self._socket, self._woken], (), ())[0]:
                asyncio.run(self._serve())
        except Exception:
            log.exception("the HTTP server at %s has ended", self.address)

    async def _serve(self) -> None:
        from lockgate_common.http.connection import Connection, ServerState, configuration

        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._wake.fileno() < 0:
                return
        config, state = configuration(self._app), ServerState()
        config.load()
        server = await self._loop.create_server(
            lambda: Connection(config, state),
            sock=self._socket,
            ssl=self._context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=_HANDSHAKE_S if self._context is not None else None,
        )
        log.info("HTTP is served at %s", self.url)
        await self._stopping.wait()
        server.close()
        await _end(state)


async def _end(state: ServerState) -> None:
    """Every connection, after the end of what it was sending."""
    connections, tasks = list(state.connections), set(state.tasks)
    for connection in connections:
        connection.shutdown()
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_STOP_S)
    for connection in connections:
        connection.transport.abort()


def _listening(bind: str, setting: str) -> socket.socket:
    host, port = host_and_port(bind)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise OSError(
            f"cannot listen on {bind}: the port is taken or the address is not this machine's; choose another with "
            f"{setting}"
        ) from error
    return listening
