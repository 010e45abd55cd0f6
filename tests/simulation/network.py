"""The control stream between a task manager and a coordinator: in order each way, delayed, and it can break."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
from lockgate_coordinator.runtime.link import Registration, TaskManagerLink
from lockgate_proto.messages import CoordinatorMessage, LeaderRecord, Register, TaskManagerMessage

from tests.simulation.paths import Direction
from tests.simulation.world import Fifo

if TYPE_CHECKING:
    from lockgate_coordinator.runtime.term import LeaderTerm

    from tests.simulation.coordinator import SimulatedCoordinator
    from tests.simulation.taskmanager import SimulatedTaskManager

GRANT_WAIT_MS = 500


class _Link(TaskManagerLink):
    """The real one, with an onlooker for what the leader sends."""

    def __init__(self, peer: str, on_change: Callable[[], None], seen: Callable[[CoordinatorMessage], None]) -> None:
        super().__init__(peer, on_change)
        self._seen = seen

    def send(self, message: CoordinatorMessage) -> bool:
        self._seen(message)
        return super().send(message)


class ControlStream:
    """One stream. Each end knows by itself whether it is over: the other end notices it when the path is open."""

    def __init__(
        self,
        tm: SimulatedTaskManager,
        coordinator: SimulatedCoordinator,
        leader: LeaderRecord,
        seen: Callable[[CoordinatorMessage], None],
    ) -> None:
        """seen: is given what the leader sends, whether or not it arrives."""
        self.leader = leader
        self._tm, self._coordinator = tm, coordinator
        self._world = world = tm.world
        self._up = Direction(Fifo(world, 0.2, 8).put, world, (tm.id, coordinator.id), coordinator)
        self._down = Direction(Fifo(world, 0.2, 8).put, world, (coordinator.id, tm.id), tm)
        self.link = _Link(tm.name, self._rung, seen)
        self._is_due = self._is_broken = False
        self._term: LeaderTerm | None = None
        self._waited_ms = 0.0

    # -- the coordinator's end, as its ControlService has it --------------------------------------------------

    def _rung(self) -> None:
        """Under the link's lock: there is something to take, or the link is closed."""
        if not self._is_due:
            self._is_due = True
            self._coordinator.later(0, self._write)

    def _write(self) -> None:
        self._is_due = False
        while (message := self.link.take()) is not None:
            self._down.put(_receiving(self._tm, self, message))
        if self.link.end is not None:
            self._break(self.link.end[1])
            self._coordinator.later(0, self._broken)

    def _broken(self) -> None:
        """This end is over."""
        term, link = self._term, self.link
        if term is not None:
            self._coordinator.dispatcher.tell(term, lambda: term.task_managers.broken(link, self._tm.id))

    # -- the task manager's end ---------------------------------------------------------------------------------------

    def to_coordinator(self, message: TaskManagerMessage) -> None:
        """What the task manager sends."""
        self._up.put(lambda: self._received(message))

    def leave(self, reason: str) -> None:
        """The task manager ends it."""
        self._break(reason)
        self._tm.later(self._world.delay(0.5, 5), lambda: self._tm.stream_ended(self))

    # -- as a network -------------------------------------------------------------------------------------------------

    def break_off(self, reason: str) -> None:
        """It ends from without. What is on its way may be lost."""
        self._break(reason)

    def _break(self, reason: str) -> None:
        if self._is_broken:
            return
        self._is_broken = True
        self._world.note("network", f"{self._tm.name} - {self._coordinator.name} breaks: {reason}")
        for direction in (self._up, self._down):
            if self._world.chance(0.7):
                direction.lose()
        self._down.put(lambda: self._tm.stream_ended(self), is_end=True)
        self._up.put(self._broken, is_end=True)

    def _received(self, message: TaskManagerMessage) -> None:
        if self.link.end is not None:
            return
        term = self._term or self._coordinator.dispatcher.term
        if term is None:
            self._wait_for_grant(message)
            return
        if message.token > term.token:
            self._coordinator.dispatcher.refuse_token(self._tm.name, message.token, term)
            self.link.close(grpc.StatusCode.FAILED_PRECONDITION, "it has seen a higher token")
            return
        body: Any = message.body
        dispatcher = self._coordinator.dispatcher
        if isinstance(body, Register):
            self._term = term
            registration = Registration(message.task_manager_id, body, self.link, message.token, message.acknowledged)
            if not dispatcher.tell(term, lambda: term.task_managers.register(registration)):
                self.link.close(grpc.StatusCode.UNAVAILABLE, "it does not lead any more")
        elif self._term is not None:
            dispatcher.tell(term, lambda: term.task_managers.received(self.link, message))

    def _wait_for_grant(self, message: TaskManagerMessage) -> None:
        if not isinstance(message.body, Register):
            return
        self._waited_ms += 50
        if self._waited_ms > GRANT_WAIT_MS:
            self.link.close(grpc.StatusCode.UNAVAILABLE, "it is not the leader")
        else:
            self._coordinator.later(50, lambda: self._received(message))


def _receiving(tm: SimulatedTaskManager, stream: ControlStream, message: CoordinatorMessage) -> Callable[[], None]:
    return lambda: tm.receive(stream, message)
