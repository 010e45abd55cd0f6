"""The CoordinationStore over whatever session its owner has now."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from ha.epoch import token_of
from ha.errors import Conflict, Fenced, OutcomeUnknown, StoreUnavailable
from ha.grant import LeadershipGrant
from ha.paths import Paths
from ha.session import Session
from ha.store import Check, Operation


class SessionStore:
    """Outlives sessions: the owner attaches each new one. Thread-safe. See `ha.store.CoordinationStore`.

    A grant of a session that is no longer attached is refused here; one that was superseded is refused by ZooKeeper.
    """

    def __init__(self, cluster: str, session: Session | None = None) -> None:
        self._paths = Paths(cluster)
        self._changed = threading.Condition()
        self._session = session
        self._epoch: tuple[int, int] | None = None  # (token, version of /epoch under that token)

    def attach(self, session: Session | None) -> None:
        """From now on calls go to `session`; None when there is none."""
        with self._changed:
            self._session = session
            self._changed.notify_all()

    def read(self, path: str) -> bytes | None:
        """See CoordinationStore."""
        node = self._current().get(path)
        return None if node is None else node.data

    def children(self, path: str) -> tuple[str, ...]:
        """See CoordinationStore."""
        return self._current().children(path)

    def commit(self, grant: LeadershipGrant, operations: Sequence[Operation]) -> None:
        """See CoordinationStore."""
        session = self._current()
        if session.id != grant.session:
            raise Fenced(grant.token, grant.token, f"the session {grant.session} of token {grant.token} is gone")
        for _ in range(2):  # twice: `/epoch` may have been rewritten with the same token
            fence = Check(self._paths.epoch, self._epoch_version(session, grant))
            try:
                session.transact([fence, *operations])
                return
            except Conflict as conflict:
                if conflict.path != self._paths.epoch:
                    raise
                self._epoch = None
            except OutcomeUnknown:
                self._epoch = None
                raise
        raise StoreUnavailable(f"{self._paths.epoch} keeps changing; nothing was written")

    def settle(self, timeout_ms: int) -> None:
        """See CoordinationStore."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            session = self._wait_session(deadline)
            if session.wait_connected(max(0, round((deadline - time.monotonic()) * 1000))):
                try:
                    session.sync()
                    return
                except StoreUnavailable:
                    if time.monotonic() >= deadline:
                        raise
            elif time.monotonic() >= deadline:
                raise StoreUnavailable(f"ZooKeeper did not answer within {timeout_ms} ms")
            else:
                self._wait_replaced(session, deadline)

    def _current(self) -> Session:
        with self._changed:
            if self._session is None:
                raise StoreUnavailable("there is no session with ZooKeeper")
            return self._session

    def _wait_session(self, deadline: float) -> Session:
        with self._changed:
            self._changed.wait_for(lambda: self._session is not None, max(0.0, deadline - time.monotonic()))
        return self._current()

    def _wait_replaced(self, lost: Session, deadline: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._session is not lost, max(0.0, deadline - time.monotonic()))

    def _epoch_version(self, session: Session, grant: LeadershipGrant) -> int:
        """The version that `/epoch` has while it holds the grant's token.

        A token never comes back, so once read the version stays right for this token; ZooKeeper checks it each time.
        """
        known = self._epoch
        if known is not None and known[0] == grant.token:
            return known[1]
        node = session.get(self._paths.epoch)
        token = 0 if node is None else token_of(self._paths.epoch, node.data)
        if node is None or token != grant.token:
            raise Fenced(grant.token, token)
        self._epoch = (token, node.version)
        return node.version
