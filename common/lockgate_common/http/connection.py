"""One connection of uvicorn, and what bounds it. Imported only in a server's thread: uvicorn takes a while."""

from __future__ import annotations

import asyncio
import logging

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState as ServerState

from lockgate_common.http.shield import SOCKET

MAX_CONNECTIONS = 200
_HEAD_S = 10.0
"""From the start of a connection, or the end of an answer, until the head of the next request is there."""
_MAX_HEAD_BYTES = 16 * 1024

_silent = logging.getLogger("lockgate.http.protocol")
_silent.disabled = True  # strangers would fill the log; what an app raises, the shield logs


def configuration(app: object) -> Config:
    """What uvicorn's protocol needs to know."""
    return Config(
        app,  # type: ignore[arg-type]  # our scopes are dicts, uvicorn's typed dicts
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        interface="asgi3",
        timeout_keep_alive=int(_HEAD_S),
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
    )


class Connection(H11Protocol):
    """Closes itself when there are too many, and when a client takes too long to ask."""

    def __init__(self, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.logger = self.access_logger = _silent
        self.access_log = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn calls it."""
        super().connection_made(transport)
        self.app_state = {SOCKET: transport.get_extra_info("socket")}
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """As uvicorn calls it."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """As uvicorn calls it."""
        self._expect_head()
        super().on_response_complete()

    def _expect_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(_HEAD_S, self._end_if_silent)

    def _end_if_silent(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
