"""A session with the embedded twin."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ha.session import (
    SESSION_TRANSITIONS,
    Node,
    SessionState,
    StateListener,
    Watcher,
    refuse_large,
    refuse_long,
)
from ha.store import Operation

if TYPE_CHECKING:
    from ha.embedded.server import EmbeddedZooKeeper


class EmbeddedSession:
    """See `ha.session.Session`."""

    def __init__(self, server: EmbeddedZooKeeper, listener: StateListener | None) -> None:
        self._server = server
        self._listener = listener
        self._changed = threading.Condition(server.lock)
        self._state = SessionState.CONNECTING
        self.id = ""

    @property
    def state(self) -> SessionState:
        """See Session."""
        return self._state

    def get(self, path: str, watch: Watcher | None = None) -> Node | None:
        """See Session."""
        refuse_long(path)
        return self._server.get(self, path, watch)

    def children(self, path: str, watch: Watcher | None = None) -> tuple[str, ...]:
        """See Session."""
        refuse_long(path)
        return self._server.children(self, path, watch)

    def transact(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See Session."""
        refuse_large(operations)
        return self._server.transact(self, operations)

    def sync(self) -> None:
        """See Session."""
        self._server.check_connected(self)

    def wait_connected(self, timeout_ms: int) -> bool:
        """See Session."""
        with self._changed:
            ready = (SessionState.CONNECTED, SessionState.LOST)
            self._changed.wait_for(lambda: self._state in ready, timeout_ms / 1000)
            return self._state is SessionState.CONNECTED

    def close(self) -> None:
        """See Session."""
        self._server.leave(self, crash=False)

    def abandon(self) -> None:
        """See Session."""
        self._server.leave(self, crash=True)

    def become(self, state: SessionState) -> None:
        """For the server, under its lock: the next state, unless the session's life does not allow it."""
        if state not in SESSION_TRANSITIONS[self._state]:
            return
        self._state = state
        self._changed.notify_all()
        if self._listener is not None:
            self._listener(state, self.id)
