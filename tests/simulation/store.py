"""The embedded ZooKeeper with an onlooker, unknown outcomes and points at which writers die."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NoReturn

from lockgate_ha.embedded import EmbeddedSession, EmbeddedZooKeeper
from lockgate_ha.errors import Conflict, OutcomeUnknown, StoreUnavailable
from lockgate_ha.paths import Paths
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.session import Session, SessionState, StateListener
from lockgate_ha.store import Operation
from lockgate_proto.codec import decode
from lockgate_proto.messages import LeaderRecord

from tests.simulation.coordinator import CLUSTER, SimulatedCoordinator
from tests.simulation.world import Crash, World

PATHS = Paths(CLUSTER)
SESSION_MS = 4_000
BROKEN_MS = (50.0, 1_500.0, 5_000.0)
"""How long at most a connection is away that broke in a write: a moment, longer than a look at it, than the session."""
LOOK_MS = 20.0


class SimulatedSession(EmbeddedSession):
    """Whoever waits for it lets the world go on."""

    def __init__(
        self, world: World, server: ObservedZooKeeper, listener: StateListener | None, protection: Protection
    ) -> None:
        super().__init__(server, listener, protection)
        self._world = world

    def wait_connected(self, timeout_ms: int) -> bool:
        deadline = self._world.now + timeout_ms
        while self.state not in (SessionState.CONNECTED, SessionState.LOST) and self._world.now < deadline:
            self._world.wait(min(LOOK_MS, deadline - self._world.now))
        return self.state is SessionState.CONNECTED


class ObservedZooKeeper(EmbeddedZooKeeper):
    """on_write(operations, session) sees every transaction that was done; on_leader(record) every other `/leader`."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.on_write: Callable[[Sequence[Operation], str], None] = lambda *_: None
        self.on_leader: Callable[[LeaderRecord | None], None] = lambda _: None
        self.unknown_outcomes = 0  # so many of the next writes break off
        self._late: dict[str, Sequence[Operation]] = {}  # by session: the write that is done later
        self._leader_data = b""

    def open(self, listener: StateListener | None = None, protection: Protection = UNPROTECTED) -> EmbeddedSession:
        with self.lock:
            session = SimulatedSession(self._world, self, listener, protection)
            if self._down:
                self._unopened.append(session)
            else:
                self._welcome(session)
            return session

    def transact(self, session: EmbeddedSession, operations: Sequence[Operation]) -> tuple[str, ...]:
        writer = self._world.current
        if isinstance(writer, SimulatedCoordinator):
            writer.point("before a ZooKeeper write")
        if self.unknown_outcomes > 0 and session.state is SessionState.CONNECTED:
            self.unknown_outcomes -= 1
            self._break_off(session, operations)
        paths = super().transact(session, operations)
        self._seen(operations, session)
        if isinstance(writer, SimulatedCoordinator):
            writer.point("after a ZooKeeper write")
        return paths

    def _break_off(self, session: EmbeddedSession, operations: Sequence[Operation]) -> NoReturn:
        """The connection breaks during a write, which was done, is not done, or will be before the session is back."""
        away_ms = self._world.delay(1, self._world.random.choice(BROKEN_MS))
        outcome = self._world.random.choice(("done", "not done", "done later"))
        self._world.note("ZOOKEEPER", f"session {session.id} breaks for {away_ms:.0f} ms in a write: {outcome}")
        if outcome == "done":
            self._carry_out(session, operations)
        elif outcome == "done later":
            self._late[session.id] = operations
            self._world.schedule(self._world.delay(0, away_ms), lambda: self._carry_out_late(session, operations))
        self.cut_off(session, away_ms)
        raise OutcomeUnknown(f"the connection broke during a write ({outcome})")

    def _carry_out(self, session: EmbeddedSession, operations: Sequence[Operation]) -> None:
        """A request that has left its client, if it can be done."""
        if session.id not in self._alive:
            return
        with contextlib.suppress(Conflict):
            _, changes = self._tree.transact(operations, session.id, None)
            self._fire(changes)
            self._seen(operations, session)

    def _carry_out_late(self, session: EmbeddedSession, operations: Sequence[Operation]) -> None:
        """The same unless the session has a new connection: ZooKeeper refuses what comes from the one before."""
        if self._late.get(session.id) is operations:
            del self._late[session.id]
            self._carry_out(session, operations)

    def resume(self, session: Session) -> None:
        self._late.pop(session.id, None)
        super().resume(session)

    def _seen(self, operations: Sequence[Operation], session: Session) -> None:
        self.on_write(operations, session.id)
        self._look()

    def cut_off(self, session: Session, duration_ms: float) -> None:
        """One session's connection is away for so long, and the session ends when that is too long."""
        self.suspend(session)
        if duration_ms > SESSION_MS:
            self._world.schedule(SESSION_MS, lambda: self.expire(session.id))
        self._world.schedule(duration_ms, lambda: self._back(session))

    def _back(self, session: Session) -> None:
        if self._down:
            self._world.schedule(LOOK_MS, lambda: self._back(session))
        else:
            self.resume(session)

    def expire(self, session_id: str) -> None:
        super().expire(session_id)
        self._look()

    def leave(self, session: EmbeddedSession, crash: bool) -> None:
        super().leave(session, crash)
        self._look()

    def data(self, path: str) -> bytes | None:
        """What a node holds now, for the onlooker."""
        node = self._tree.get(path, None)
        return None if node is None else node.data

    def names(self, path: str) -> tuple[str, ...]:
        """The children of a node now."""
        return self._tree.children(path, None) or ()

    def leader(self) -> LeaderRecord | None:
        """Who leads now."""
        data = self.data(PATHS.leader)
        return None if data is None else decode(LeaderRecord, data)

    def _look(self) -> None:
        data = self.data(PATHS.leader) or b""
        if data != self._leader_data:
            self._leader_data = data
            self.on_leader(decode(LeaderRecord, data) if data else None)


__all__ = ["PATHS", "Crash", "ObservedZooKeeper", "Session", "StoreUnavailable"]
