"""A session with ZooKeeper, the interface of `lockgate_ha.zookeeper` and its twin `lockgate_ha.embedded`.

A session object lives exactly as long as its session: when ZooKeeper expires it the object is dead and a new
one has to be opened. Requests are never queued while disconnected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from lockgate_ha.errors import RecordTooLarge
from lockgate_ha.protection import Protection
from lockgate_ha.store import Create, Operation, Put

MAX_TRANSACTION_BYTES = 1_000_000
"""ZooKeeper drops the connection at 1 MiB (jute.maxbuffer), so larger requests are refused before they are sent."""


MAX_PATH_BYTES = 8_192
"""A read is a request, too: a path longer than any of ours is refused before it can break the connection."""


def refuse_long(path: str) -> None:
    """Raises RecordTooLarge for a path that is too long to send."""
    size = len(path.encode())
    if size > MAX_PATH_BYTES:
        raise RecordTooLarge(
            f"a ZooKeeper path of {size} bytes ({path[:60]}...) is more than the {MAX_PATH_BYTES} allowed"
        )


def refuse_large(operations: Sequence[Operation]) -> None:
    """Raises RecordTooLarge for a transaction that is too large to send."""
    for operation in operations:
        refuse_long(operation.path)
    size = sum(len(operation.path.encode()) + 64 + _data_bytes(operation) for operation in operations)
    if size > MAX_TRANSACTION_BYTES:
        raise RecordTooLarge(f"{size} bytes in one transaction are more than the {MAX_TRANSACTION_BYTES} allowed")


def _data_bytes(operation: Operation) -> int:
    return len(operation.data) if isinstance(operation, Create | Put) else 0


class SessionState(Enum):
    """
    ```
    CONNECTING --> CONNECTED <--> SUSPENDED
        |              |              |
        +--------------+--------------+--> LOST (expired by ZooKeeper, or closed)
    ```
    """

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


SESSION_TRANSITIONS: dict[SessionState, frozenset[SessionState]] = {
    SessionState.CONNECTING: frozenset({SessionState.CONNECTED, SessionState.LOST}),
    SessionState.CONNECTED: frozenset({SessionState.SUSPENDED, SessionState.LOST}),
    SessionState.SUSPENDED: frozenset({SessionState.CONNECTED, SessionState.LOST}),
    SessionState.LOST: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read.

    version: number of changes of its data; owner: the session that owns it, hexadecimal, "" for persistent.
    """

    data: bytes
    version: int
    owner: str


Watcher = Callable[[], None]
"""Called once when the watched node may have changed or the connection broke. Must only enqueue and return."""

StateListener = Callable[[SessionState, str], None]
"""Called with every new state and the session's id, in order, on a thread of the session. Must only enqueue."""


class Session(Protocol):
    """Thread-safe. Reads raise StoreUnavailable (SessionLost once the session is gone, AccessDenied where a node
    belongs to someone else), RecordTooLarge. Nodes are made for the owner that `protection` names, and for no other.
    """

    @property
    def protection(self) -> Protection:
        """Of the cluster that the session is for."""
        ...

    @property
    def id(self) -> str:
        """The session, hexadecimal; "" before it is first connected."""
        ...

    @property
    def state(self) -> SessionState:
        """The current state."""
        ...

    def get(self, path: str, watch: Watcher | None = None) -> Node | None:
        """The node, None when it does not exist. `watch` is notified of its creation, change or removal, once."""
        ...

    def get_all(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        """As `get` of each, in that order. All requests are sent before the first answer is awaited."""
        ...

    def children(self, path: str, watch: Watcher | None = None) -> tuple[str, ...]:
        """Sorted names of the children, () for a missing node (then nothing is watched)."""
        ...

    def transact(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """All operations or none. Returns each operation's path (a sequential Create's with its number).

        Raises Conflict with the first path in conflict, StoreUnavailable, OutcomeUnknown, RecordTooLarge.
        """
        ...

    def sync(self) -> None:
        """Makes later reads see every write that was accepted before. Raises StoreUnavailable."""
        ...

    def wait_connected(self, timeout_ms: int) -> bool:
        """Waits until connected. False when `timeout_ms` passed or the session is lost."""
        ...

    def close(self) -> None:
        """Ends the session: its ephemeral nodes are deleted at once if ZooKeeper can be reached. Joins its threads."""
        ...

    def abandon(self) -> None:
        """Drops the connection as a crash would: ephemeral nodes stay until ZooKeeper expires the session."""
        ...


class Connector(Protocol):
    """Opens sessions. Made by `lockgate_ha.zookeeper.connector(hosts)` or `EmbeddedZooKeeper.connector()`."""

    @property
    def hosts(self) -> str:
        """The addresses it connects to, for messages."""
        ...

    @property
    def protection(self) -> Protection:
        """Of the cluster whose nodes are read and written."""
        ...

    def trouble(self) -> str:
        """Why nothing answers, in one sentence; "" when that cannot be seen. Asks every server, so it takes time."""
        ...

    def open(self, listener: StateListener | None = None) -> Session:
        """A new session in state CONNECTING; it retries until it is connected or closed. Returns at once."""
        ...


def is_connected(session: Session | None) -> bool:
    """Whether there is a session and it is connected now."""
    return session is not None and session.state is SessionState.CONNECTED
