"""The CoordinationStore over its owner's current session."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from lockgate_ha.epoch import token_of
from lockgate_ha.errors import Conflict, Fenced, OutcomeUnknown, StoreUnavailable
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths
from lockgate_ha.protection import Protection
from lockgate_ha.session import Session
from lockgate_ha.store import Check, Operation


class SessionStore:
    """Outlives sessions: the owner attaches each new one. Thread-safe. See `lockgate_ha.store.CoordinationStore`.

    A grant of a session that is no longer attached is refused here; a superseded grant is refused by ZooKeeper.
    """

    def __init__(self, cluster: str, session: Session | None = None, protection: Protection | None = None) -> None:
        """protection: that of the session when none is given."""
        self._paths = Paths(cluster)
        self._protection = protection or (session.protection if session is not None else Protection(cluster))
        self._changed = threading.Condition()
        self._session = session
        self._epoch: tuple[int, int] | None = None  # (token, version of /epoch under that token)

    def attach(self, session: Session | None) -> None:
        """From now on calls go to `session`; None when there is none."""
        with self._changed:
            self._session = session
            self._changed.notify_all()

    @property
    def protection(self) -> Protection:
        return self._protection

    def read(self, path: str) -> bytes | None:
        node = self._current().get(path)
        return None if node is None else node.data

    def read_all(self, paths: Sequence[str]) -> tuple[bytes | None, ...]:
        return tuple(None if node is None else node.data for node in self._current().get_all(paths))

    def children(self, path: str) -> tuple[str, ...]:
        return self._current().children(path)

    def commit(self, grant: LeadershipGrant, operations: Sequence[Operation]) -> None:
        session = self._current()
        if session.id != grant.session:
            raise Fenced(grant.token, grant.token, f"the session {grant.session} of token {grant.token} has ended")
        for trusted in (True, False):  # twice: `/epoch` may have been rewritten with the same token
            fence = Check(self._paths.epoch, self._epoch_version(session, grant, trusted=trusted))
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

    def _epoch_version(self, session: Session, grant: LeadershipGrant, *, trusted: bool) -> int:
        """The version of `/epoch` while it holds the grant's token. trusted: use the version in the grant.

        A token is never reused, so a known version stays valid for this token; ZooKeeper checks it each time.
        """
        known = self._epoch
        if known is not None and known[0] == grant.token:
            return known[1]
        if trusted and grant.epoch_version is not None:
            return grant.epoch_version
        node = session.get(self._paths.epoch)
        token = 0 if node is None else token_of(self._paths.epoch, node.data)
        if node is None or token != grant.token:
            raise Fenced(grant.token, token)
        self._epoch = (token, node.version)
        return node.version
