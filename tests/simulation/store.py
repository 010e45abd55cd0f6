"""The embedded ZooKeeper with an onlooker, unknown outcomes and points at which writers die."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockgate_proto.codec import decode
from lockgate_proto.messages import LeaderRecord

from ha.embedded import EmbeddedSession, EmbeddedZooKeeper
from ha.errors import OutcomeUnknown, StoreUnavailable
from ha.paths import Paths
from ha.session import Session, SessionState
from ha.store import Operation
from tests.simulation.coordinator import CLUSTER, SimulatedCoordinator
from tests.simulation.world import Crash, World

PATHS = Paths(CLUSTER)


class ObservedZooKeeper(EmbeddedZooKeeper):
    """on_write(operations, session) sees every transaction that was done; on_leader(record) every other `/leader`."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.on_write: Callable[[Sequence[Operation], str], None] = lambda *_: None
        self.on_leader: Callable[[LeaderRecord | None], None] = lambda _: None
        self.unknown_outcomes = 0  # so many of the next writes break off
        self._leader_data = b""

    def transact(self, session: EmbeddedSession, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See EmbeddedZooKeeper."""
        writer = self._world.current
        if isinstance(writer, SimulatedCoordinator):
            writer.point("before a ZooKeeper write")
        breaks = self.unknown_outcomes > 0 and session.state is SessionState.CONNECTED
        if breaks:
            self.unknown_outcomes -= 1
            if self._world.chance(0.5):
                raise OutcomeUnknown("the connection broke during a write (not done)")
        paths = super().transact(session, operations)
        self.on_write(operations, session.id)
        self._look()
        if isinstance(writer, SimulatedCoordinator):
            writer.point("after a ZooKeeper write")
        if breaks:
            raise OutcomeUnknown("the connection broke during a write (done)")
        return paths

    def expire(self, session_id: str) -> None:
        """See EmbeddedZooKeeper."""
        super().expire(session_id)
        self._look()

    def leave(self, session: EmbeddedSession, crash: bool) -> None:
        """See EmbeddedZooKeeper."""
        super().leave(session, crash)
        self._look()

    def data(self, path: str) -> bytes | None:
        """What a node holds now, for the onlooker."""
        node = self._tree.get(path)
        return None if node is None else node.data

    def names(self, path: str) -> tuple[str, ...]:
        """The children of a node now."""
        return self._tree.children(path)

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
