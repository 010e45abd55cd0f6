"""A ZooKeeper session over kazoo that avoids kazoo's pitfalls.

- one client per session: an expired client would reconnect under a new session by itself, so it is stopped at once;
- requests are refused while not connected: kazoo would queue them and send them at any later time;
- a handshake without an answer is aborted long before the session expires;
- no `client.retry`: after expiry it repeats requests that were meant for the old session;
- every result of a transaction is checked: `commit()` returns exceptions in a list instead of raising.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from lockgate_common.tls import TlsFiles

from lockgate_ha.errors import AccessDenied, Conflict, OutcomeUnknown, SessionLost, StoreUnavailable
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.session import (
    SESSION_TRANSITIONS,
    Node,
    SessionState,
    StateListener,
    Watcher,
    refuse_large,
    refuse_long,
)
from lockgate_ha.store import Check, Create, Delete, Operation, Put
from lockgate_ha.zookeeper.rights import acl_of, rights
from lockgate_ha.zookeeper.tls import transport

logger = logging.getLogger(__name__)

_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.CRITICAL)  # it warns at every refused reconnect; relevant events are logged here

_RECONNECT_DELAY_S = 0.05
_RECONNECT_MAX_S = 0.2  # with jitter at most 0.25: after an outage the session is back before it can expire
_HANDSHAKES = 4  # reconnect attempts that fit into a session timeout, even if none is answered
_CLOSE_S = 3.0

_REFUSALS: dict[type[Exception], str] = {
    NodeExistsError: "exists already",
    NoNodeError: "does not exist",
    BadVersionError: "was changed by someone else",
    NotEmptyError: "has children",
}


class ZooKeeperSession:
    """One session of one kazoo client. Starts connecting at once, in the background."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        listener: StateListener | None = None,
        protection: Protection = UNPROTECTED,
        tls: TlsFiles | None = None,
    ) -> None:
        self._hosts = hosts
        self._protection = protection
        self._tls = tls
        self._listener = listener
        self._changed = threading.Condition()
        self._state = SessionState.CONNECTING
        self._id = ""
        self._request_s = max(1.0, session_timeout_ms / 1000)
        self._closer: threading.Thread | None = None
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RECONNECT_DELAY_S, backoff=2, max_jitter=0.25, max_delay=_RECONNECT_MAX_S
            ),
            command_retry=KazooRetry(max_tries=0),
            logger=_kazoo_logger,
            **rights(protection),
            **transport(tls),
        )
        _bound_handshakes(self._client, session_timeout_ms / 1000 / _HANDSHAKES)
        self._client.add_listener(self._on_kazoo)
        self._client.start_async()

    @property
    def id(self) -> str:
        return self._id

    @property
    def protection(self) -> Protection:
        return self._protection

    @property
    def state(self) -> SessionState:
        return self._state

    def get(self, path: str, watch: Watcher | None = None) -> Node | None:
        watcher = _watcher(watch)
        while True:
            try:
                return _node(*self._read(self._client.get_async, path, watcher))
            except NoNodeError:
                if watcher is None or self._read(self._client.exists_async, path, watcher) is None:
                    return None  # watched for its creation; when it was created just now, it is read again

    def get_all(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        asked = [self._ask(self._client.get_async, path, None) for path in paths]
        return tuple(map(self._node, asked, paths))

    def _node(self, asked: Any, path: str) -> Node | None:
        try:
            return _node(*self._answer(asked, path))
        except NoNodeError:
            return None

    def children(self, path: str, watch: Watcher | None = None) -> tuple[str, ...]:
        try:
            return tuple(sorted(self._read(self._client.get_children_async, path, _watcher(watch))))
        except NoNodeError:
            return ()

    def transact(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        refuse_large(operations)
        transaction = self._client.transaction()
        for operation in operations:
            _add(transaction, operation, self._protection)
        self._need_connection()
        try:
            results = transaction.commit_async().get(timeout=self._request_s)
        except (SessionExpiredError, SessionMovedError, ConnectionClosedError) as error:
            raise SessionLost(f"the ZooKeeper session {self._id} has ended") from error
        except (ConnectionLoss, KazooTimeoutError) as error:
            raise OutcomeUnknown("the connection to ZooKeeper broke during a write") from error
        except KazooException as error:
            raise StoreUnavailable(f"ZooKeeper refused the write: {error!r}") from error
        return _inspected(operations, results)

    def sync(self) -> None:
        with contextlib.suppress(NoNodeError):
            self._read(lambda path, _watch: self._client.sync_async(path), "/", None)

    def wait_connected(self, timeout_ms: int) -> bool:
        with self._changed:
            ready = (SessionState.CONNECTED, SessionState.LOST)
            self._changed.wait_for(lambda: self._state in ready, timeout_ms / 1000)
            return self._state is SessionState.CONNECTED

    def close(self) -> None:
        self._to(SessionState.LOST)
        closer = self._start_closing()
        if closer is not threading.current_thread():
            closer.join(_CLOSE_S)  # a silent server can block kazoo longer; the thread is then left to end by itself

    def abandon(self) -> None:
        """Uses kazoo's internals, which has no method for this."""
        self._to(SessionState.LOST)
        self._client._stopped.set()
        connection = self._client._connection._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # TLS's own would let plain text out before
        self.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _on_kazoo(self, state: str) -> None:
        """On kazoo's connection thread, which must not be joined from here."""
        if state == KazooState.CONNECTED:
            session = self._client._session_id
            if self._id and self._id != f"{session:x}":
                self._lose()  # another session: this object's own has ended
                return
            self._id = f"{session:x}"
            self._to(SessionState.CONNECTED)
        elif state == KazooState.SUSPENDED:
            self._to(SessionState.SUSPENDED)
        else:
            self._lose()

    def _lose(self) -> None:
        self._to(SessionState.LOST)
        self._start_closing()

    def _to(self, state: SessionState) -> None:
        with self._changed:
            if state not in SESSION_TRANSITIONS[self._state]:
                return  # after LOST kazoo still reports states for a moment
            self._state = state
            self._changed.notify_all()
            if self._listener is not None:  # inside the lock, so that states are reported in order
                self._listener(state, self._id)
        level = logging.WARNING if state is SessionState.SUSPENDED else logging.INFO
        logger.log(level, "ZooKeeper session %s at %s: %s", self._id or "(new)", self._hosts, state.value)

    def _start_closing(self) -> threading.Thread:
        with self._changed:
            if self._closer is None:
                self._closer = threading.Thread(
                    target=self._end_client, name=f"zookeeper-close-{self._id}", daemon=True
                )
                self._closer.start()
            return self._closer

    def _end_client(self) -> None:
        try:
            self._client.stop()
            if not self._client._connection.connection_stopped.is_set():
                self._client._safe_close()  # abandoned: kazoo considers itself stopped
            self._client.close()
        except Exception as error:
            logger.info("closing the ZooKeeper session %s: %r", self._id, error)

    def _need_connection(self) -> None:
        state = self._state
        if state is SessionState.LOST:
            raise SessionLost(f"the ZooKeeper session {self._id} has ended")
        if state is not SessionState.CONNECTED:
            raise StoreUnavailable(f"not connected to ZooKeeper at {self._hosts}")

    def _read(self, ask: Callable[..., Any], path: str, watch: Callable[[Any], None] | None) -> Any:
        return self._answer(self._ask(ask, path, watch), path)

    def _ask(self, ask: Callable[..., Any], path: str, watch: Callable[[Any], None] | None) -> Any:
        refuse_long(path)
        self._need_connection()
        return ask(path, watch)

    def _answer(self, asked: Any, path: str) -> Any:
        try:
            return asked.get(timeout=self._request_s)
        except (SessionExpiredError, ConnectionClosedError) as error:
            raise SessionLost(f"the ZooKeeper session {self._id} has ended") from error
        except NoNodeError:
            raise
        except NoAuthError as error:
            raise AccessDenied(path) from error
        except (KazooException, KazooTimeoutError) as error:
            raise StoreUnavailable(f"ZooKeeper at {self._hosts} did not answer: {error!r}") from error


def _bound_handshakes(client: Any, limit_s: float) -> None:
    """Bounds the waits of a reconnect with an existing session. Uses kazoo's internals.

    A server that is just starting accepts a connection and may never answer on it. Kazoo would wait for a whole session
    timeout, in which the session has to reconnect: it would expire at the second attempt.
    """
    invoke, create_connection = client._connection._invoke, client.handler.create_connection

    def bounded_invoke(timeout: float, *arguments: Any, **named: Any) -> Any:
        return invoke(min(timeout, limit_s) if client._session_id else timeout, *arguments, **named)

    def bounded_connection(*arguments: Any, timeout: float, **named: Any) -> Any:
        return create_connection(*arguments, timeout=min(timeout, limit_s) if client._session_id else timeout, **named)

    client._connection._invoke, client.handler.create_connection = bounded_invoke, bounded_connection


@dataclass(frozen=True)
class _EqualWatcher:
    """A watcher as kazoo calls it. Equal for equal watchers, so that a repeated watch is notified once."""

    watch: Watcher

    def __call__(self, _event: Any) -> None:
        self.watch()


def _node(data: bytes, stat: Any) -> Node:
    return Node(data, stat.version, f"{stat.ephemeralOwner:x}" if stat.ephemeralOwner else "")


def _watcher(watch: Watcher | None) -> _EqualWatcher | None:
    return None if watch is None else _EqualWatcher(watch)


def _add(transaction: Any, operation: Operation, protection: Protection) -> None:
    match operation:
        case Create(path, data, ephemeral, sequential, shared):
            acl = acl_of(protection, shared=shared)
            transaction.create(path, data, acl, ephemeral=ephemeral, sequence=sequential)
        case Put(path, data, version):
            transaction.set_data(path, data, _expected(version))
        case Delete(path, version):
            transaction.delete(path, _expected(version))
        case Check(path, version):
            transaction.check(path, _expected(version))
        case _:
            assert_never(operation)


def _expected(version: int | None) -> int:
    return -1 if version is None else version  # 0 is a version


def _inspected(operations: Sequence[Operation], results: Sequence[Any]) -> tuple[str, ...]:
    """The paths of an applied transaction. Raises Conflict with the operation that failed."""
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, RolledBackError | RuntimeInconsistency):
            continue  # rolled back because of the operation that failed
        if isinstance(result, SessionExpiredError | SessionMovedError):
            raise SessionLost("the ZooKeeper session has ended") from result
        if isinstance(result, NoAuthError):
            raise AccessDenied(operation.path) from result
        if isinstance(result, Exception):
            raise Conflict(operation.path, _REFUSALS.get(type(result), repr(result))) from result
    if any(isinstance(result, Exception) for result in results):
        raise StoreUnavailable(f"ZooKeeper rolled a transaction back: {results!r}")
    return tuple(
        result if isinstance(operation, Create) else operation.path
        for operation, result in zip(operations, results, strict=True)
    )
