"""EmbeddedZooKeeper: sessions that can be suspended, expired and crashed at will, over a tree in memory."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Sequence

from lockgate_proto.messages import LeaderRecord

from lockgate_ha import steps
from lockgate_ha.embedded.session import EmbeddedSession
from lockgate_ha.embedded.tree import Change, Tree
from lockgate_ha.errors import OutcomeUnknown, SessionLost, StoreUnavailable
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.session import Node, Session, SessionState, StateListener, Watcher
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Operation


class EmbeddedConnector:
    """Opens sessions of the server in this process."""

    def __init__(self, server: EmbeddedZooKeeper, protection: Protection) -> None:
        self._server = server
        self._protection = protection

    @property
    def hosts(self) -> str:
        return "embedded"

    @property
    def protection(self) -> Protection:
        return self._protection

    def trouble(self) -> str:
        return ""

    def open(self, listener: StateListener | None = None) -> Session:
        """Connected at once unless the server is down."""
        return self._server.open(listener, self._protection)


class EmbeddedZooKeeper:
    """One server. Everything runs synchronously on the calling thread, including watchers and listeners, so with one
    thread a run is deterministic. There is no clock: a session ends only by `expire`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._tree = Tree()
        self._numbers = itertools.count(1)
        self._alive: dict[str, EmbeddedSession] = {}  # sessions that are not expired, including crashed ones
        self._unopened: list[EmbeddedSession] = []  # opened while down
        self._data_watches: dict[str, dict[Watcher, EmbeddedSession]] = defaultdict(dict)
        self._child_watches: dict[str, dict[Watcher, EmbeddedSession]] = defaultdict(dict)
        self._breaks: deque[bool] = deque()
        self._down = False

    # -- for tests and simulations ------------------------------------------------------------------------------------

    def connector(self, protection: Protection = UNPROTECTED) -> EmbeddedConnector:
        """What Elector and LeaderRetrieval take as `connector`."""
        return EmbeddedConnector(self, protection)

    def open(self, listener: StateListener | None = None, protection: Protection = UNPROTECTED) -> EmbeddedSession:
        """A new session."""
        with self.lock:
            session = EmbeddedSession(self, listener, protection)
            if self._down:
                self._unopened.append(session)
            else:
                self._welcome(session)
            return session

    def lead(self, cluster: str, coordinator_id: str) -> tuple[SessionStore, LeadershipGrant]:
        """A new session that takes the grant at once from any holder: a leader without an elector."""
        session, paths = self.open(), Paths(cluster)
        steps.prepare(session, paths)
        me = LeaderRecord(coordinator_id=coordinator_id, address=f"{coordinator_id}:1", session=session.id)
        contender = steps.join(session, paths, coordinator_id, me, rejoin=False)
        view = steps.read_view(session, paths, {}, lambda: None)
        record = LeaderRecord(view.epoch + 1, me.address, session.id, 0, coordinator_id)
        steps.claim(session, paths, contender, record, view.epoch_version, view.leader is not None)
        return SessionStore(cluster, session), LeadershipGrant(
            record.token, coordinator_id, session.id, view.epoch_version + 1
        )

    def stop(self) -> None:
        """Total outage: every session is suspended. The tree and the sessions stay, as in ZooKeeper's log."""
        with self.lock:
            self._down = True
            for session in list(self._alive.values()):
                session.become(SessionState.SUSPENDED)

    def start(self) -> None:
        """Ends the outage; it has expired no session."""
        with self.lock:
            self._down = False
            waiting, self._unopened = self._unopened, []
            for session in list(self._alive.values()):
                session.become(SessionState.CONNECTED)
            for session in waiting:
                self._welcome(session)

    def suspend(self, session: Session) -> None:
        """Cuts one session's connection."""
        with self.lock:
            _twin(session).become(SessionState.SUSPENDED)

    def resume(self, session: Session) -> None:
        """Lets it connect again; it is then connected, or learns that it has expired."""
        with self.lock:
            embedded_session = _twin(session)
            embedded_session.become(SessionState.CONNECTED if embedded_session.id in self._alive else SessionState.LOST)

    def expire(self, session_id: str) -> None:
        """Ends a session: its ephemeral nodes are deleted. A suspended client is notified when it is resumed."""
        with self.lock:
            session = self._alive.pop(session_id, None)
            if session is None:
                return
            self._drop_nodes(session_id)
            if session.state is SessionState.CONNECTED:
                session.become(SessionState.LOST)

    def break_next_write(self, *, applied: bool) -> None:
        """The next transaction that would succeed raises OutcomeUnknown, with or without being applied."""
        with self.lock:
            self._breaks.append(applied)

    # -- for sessions -------------------------------------------------------------------------------------------------

    def get(self, session: EmbeddedSession, path: str, watch: Watcher | None) -> Node | None:
        with self.lock:
            self._need(session)
            if watch is not None:
                self._data_watches[path][watch] = session
            node = self._tree.get(path, session.protection.owner)
            return None if node is None else Node(node.data, node.version, node.owner)

    def children(self, session: EmbeddedSession, path: str, watch: Watcher | None) -> tuple[str, ...]:
        with self.lock:
            self._need(session)
            names = self._tree.children(path, session.protection.owner)
            if watch is not None and names is not None:
                self._child_watches[path][watch] = session
            return names or ()

    def transact(self, session: EmbeddedSession, operations: Sequence[Operation]) -> tuple[str, ...]:
        with self.lock:
            self._need(session)
            if self._breaks and not self._breaks[0]:
                self._breaks.popleft()
                raise OutcomeUnknown("the connection broke during a write (not done)")
            paths, changes = self._tree.transact(operations, session.id, session.protection.owner)
            self._fire(changes)
            if self._breaks:
                self._breaks.popleft()
                raise OutcomeUnknown("the connection broke during a write (done)")
            return paths

    def check_connected(self, session: EmbeddedSession) -> None:
        """Raises StoreUnavailable."""
        with self.lock:
            self._need(session)

    def leave(self, session: EmbeddedSession, crash: bool) -> None:
        """The client ends; after a crash its session remains until it expires."""
        with self.lock:
            if session in self._unopened:
                self._unopened.remove(session)
            if not crash and session.state is SessionState.CONNECTED and session.id in self._alive:
                del self._alive[session.id]
                self._drop_nodes(session.id)
            session.become(SessionState.LOST)

    def _welcome(self, session: EmbeddedSession) -> None:
        session.id = f"{next(self._numbers):x}"
        self._alive[session.id] = session
        session.become(SessionState.CONNECTED)

    def _need(self, session: EmbeddedSession) -> None:
        if session.state is SessionState.LOST:
            raise SessionLost(f"the session {session.id} has ended")
        if session.state is not SessionState.CONNECTED:
            raise StoreUnavailable("not connected to the embedded ZooKeeper")

    def _drop_nodes(self, session_id: str) -> None:
        self._fire(self._tree.drop_owned_by(session_id))

    def _fire(self, changes: Sequence[Change]) -> None:
        for change in changes:
            watches = self._data_watches if change.data else self._child_watches
            for watch, session in watches.pop(change.path, {}).items():
                if session.state is SessionState.CONNECTED:
                    watch()


def _twin(session: Session) -> EmbeddedSession:
    assert isinstance(session, EmbeddedSession)
    return session
