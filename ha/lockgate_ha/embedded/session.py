"""A session with the in-memory twin."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from lockgate_ha.protection import Protection
from lockgate_ha.session import (
    SESSION_TRANSITIONS,
    Node,
    SessionState,
    StateListener,
    Watcher,
    refuse_large,
    refuse_long,
)
from lockgate_ha.store import Operation


class Server(Protocol):
    """What a session needs of its server, method by method as in Session. `lock` is held while a state changes."""

    @property
    def lock(self) -> threading.RLock: ...

    def get(self, session: EmbeddedSession, path: str, watch: Watcher | None) -> Node | None: ...

    def children(self, session: EmbeddedSession, path: str, watch: Watcher | None) -> tuple[str, ...]: ...

    def transact(self, session: EmbeddedSession, operations: Sequence[Operation]) -> tuple[str, ...]: ...

    def check_connected(self, session: EmbeddedSession) -> None: ...

    def leave(self, session: EmbeddedSession, crash: bool) -> None: ...


class EmbeddedSession:
    """A Session of the server in this process."""

    def __init__(self, server: Server, listener: StateListener | None, protection: Protection) -> None:
        self._server = server
        self._protection = protection
        self._listener = listener
        self._changed = threading.Condition(server.lock)
        self._state = SessionState.CONNECTING
        self.id = ""

    @property
    def protection(self) -> Protection:
        return self._protection

    @property
    def state(self) -> SessionState:
        return self._state

    def get(self, path: str, watch: Watcher | None = None) -> Node | None:
        refuse_long(path)
        return self._server.get(self, path, watch)

    def get_all(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        return tuple(map(self.get, paths))

    def children(self, path: str, watch: Watcher | None = None) -> tuple[str, ...]:
        refuse_long(path)
        return self._server.children(self, path, watch)

    def transact(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        refuse_large(operations)
        return self._server.transact(self, operations)

    def sync(self) -> None:
        self._server.check_connected(self)

    def wait_connected(self, timeout_ms: int) -> bool:
        with self._changed:
            ready = (SessionState.CONNECTED, SessionState.LOST)
            self._changed.wait_for(lambda: self._state in ready, timeout_ms / 1000)
            return self._state is SessionState.CONNECTED

    def close(self) -> None:
        self._server.leave(self, crash=False)

    def abandon(self) -> None:
        self._server.leave(self, crash=True)

    def become(self, state: SessionState) -> None:
        """For the server, under its lock: the next state, unless the session's state machine does not allow it."""
        if state not in SESSION_TRANSITIONS[self._state]:
            return
        self._state = state
        self._changed.notify_all()
        if self._listener is not None:
            self._listener(state, self.id)
