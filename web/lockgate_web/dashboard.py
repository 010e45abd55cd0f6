"""The dashboard of one coordinator: its port, and the order of its start.

The rest is imported at the first connection, which takes a second: most coordinators never serve a page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockgate_common.addresses import host_and_port, names_one_machine
from lockgate_common.http.server import HttpServer
from lockgate_common.http.shield import Receive, Scope, Send, header
from lockgate_coordinator.runtime.callers import Callers
from lockgate_coordinator.runtime.settings import DASHBOARD, CoordinatorSettings

from lockgate_web.origin_pass import OriginPasses

if TYPE_CHECKING:
    from lockgate_web.app import WebApp

_SETTING = "coordinator.dashboard (--dashboard)"
_ANY_PORT = "127.0.0.1:0"
Others = Callable[[], tuple[str, ...]]
Metrics = Callable[[], tuple[str, bytes]]


class Dashboard:
    """Implements `lockgate_coordinator.runtime.web.WebInterface`."""

    def __init__(
        self, settings: CoordinatorSettings, address: str, callers: Callers, others: Others, metrics: Metrics
    ) -> None:
        """address: of the coordinator's job API; others: URLs of the other coordinators' dashboards; metrics: the page
        for Prometheus, as content type and text.
        """
        self._settings, self._address, self._callers, self._others = settings, address, callers, others
        self._metrics = metrics
        self._passes = OriginPasses(settings.credentials.secret)
        self._app: WebApp | None = None
        self._lock = threading.Lock()
        self._server = self._opened(settings.dashboard)
        self.url = self._public_url()

    def start(self) -> None:
        """Returns at once."""
        self._server.start()

    def stop(self) -> None:
        """Idempotent."""
        self._server.stop()
        with self._lock:
            if self._app is not None:
                self._app.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI app."""
        if self._app is None:
            from lockgate_web.app import WebApp

            with self._lock:
                self._app = WebApp(
                    self._settings,
                    self._address,
                    self._callers,
                    self._others,
                    self._metrics,
                    self._passes,
                    self._server.is_local,
                )
        await self._app(scope, receive, send)

    def _opened(self, bind: str) -> HttpServer:
        """At its usual port another coordinator of this machine may be listening."""
        try:
            return self._at(bind or DASHBOARD)
        except OSError:
            if bind:
                raise
            return self._at(_ANY_PORT)

    def _at(self, bind: str) -> HttpServer:
        return HttpServer(self, bind, self._settings.credentials, _SETTING, self._may_read)

    def _may_read(self, scope: Scope) -> bool:
        return self._passes.is_valid(header(scope, "origin"), scope["query_string"])

    def _public_url(self) -> str:
        """With the name of this host where every address of it is bound."""
        if names_one_machine(self._server.address):
            return self._server.url
        host = self._address.rpartition(":")[0]
        return f"{self._server.url.partition('//')[0]}//{host}:{host_and_port(self._server.address)[1]}"
