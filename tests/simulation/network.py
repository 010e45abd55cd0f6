"""The control stream between a task manager and a coordinator: in order each way, delayed, and it can break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from lockgate_proto.messages import (
    CoordinatorMessage,
    Heartbeat,
    LeaderRecord,
    Register,
    Registered,
    TaskManagerMessage,
)

from coordinator.runtime.link import Registration
from tests.simulation.world import Fifo

if TYPE_CHECKING:
    from coordinator.runtime.term import LeaderTerm
    from tests.simulation.coordinator import SimulatedCoordinator
    from tests.simulation.taskmanager import SimulatedTaskManager

GRANT_WAIT_MS = 500
UNCERTAIN_MS = 20_000  # as coordinator.runtime.link.UNCERTAIN_S


class ControlStream:
    """One stream. Towards the coordinator's runtime it is a coordinator.runtime.link.TaskManagerLink."""

    def __init__(self, tm: SimulatedTaskManager, coordinator: SimulatedCoordinator, leader: LeaderRecord) -> None:
        self.leader = leader
        self.peer = tm.name
        self.end: tuple[grpc.StatusCode, str] | None = None
        self._tm, self._coordinator = tm, coordinator
        self._world = tm.world
        self._up, self._down = Fifo(tm.world, 0.2, 8), Fifo(tm.world, 0.2, 8)
        self._is_broken = False
        self._term: LeaderTerm | None = None
        self._waited_ms = 0.0
        self._handed: list[tuple[float, CoordinatorMessage]] = []

    # -- as a TaskManagerLink -----------------------------------------------------------------------------------------

    def send(self, message: CoordinatorMessage) -> bool:
        """See TaskManagerLink."""
        if self.end is not None:
            return False
        if not isinstance(message.body, Heartbeat | Registered):
            self._handed.append((self._world.now, message))
        self._down.put(lambda: self._arrive(message), self._tm)
        return True

    def close(self, code: grpc.StatusCode, reason: str) -> None:
        """See TaskManagerLink."""
        if self.end is None:
            self.end = (code, reason)
            self.break_off(reason)

    def take_undelivered(self) -> tuple[CoordinatorMessage, ...]:
        """See TaskManagerLink."""
        handed, self._handed = self._handed, []
        return tuple(message for at, message in handed if at >= self._world.now - UNCERTAIN_MS)

    # -- as a network -------------------------------------------------------------------------------------------------

    def to_coordinator(self, message: TaskManagerMessage) -> None:
        """What the task manager sends."""
        self._up.put(lambda: self._received(message), self._coordinator)

    def break_off(self, reason: str) -> None:
        """The stream ends: what is under way is lost, and both sides notice."""
        if self._is_broken:
            return
        self._is_broken = True
        self._world.note("network", f"{self._tm.name} - {self._coordinator.name} breaks: {reason}")
        self._tm.later(self._world.delay(0.5, 5), lambda: self._tm.stream_ended(self))
        self._coordinator.later(self._world.delay(0.5, 5), self._broken)

    def _broken(self) -> None:
        term = self._term
        if term is not None:
            self._coordinator.dispatcher.tell(term, lambda: term.task_managers.broken(self, self._tm.id))  # type: ignore[arg-type]

    def _arrive(self, message: CoordinatorMessage) -> None:
        if not self._is_broken:
            self._tm.receive(self, message)

    def _received(self, message: TaskManagerMessage) -> None:
        if self._is_broken:
            return
        term = self._term or self._coordinator.dispatcher.term
        if term is None:
            self._wait_for_grant(message)
            return
        if message.token > term.token:
            self._coordinator.dispatcher.refuse_token(self._tm.name, message.token, term)
            self.break_off("it has seen a higher token")
            return
        body: Any = message.body
        dispatcher = self._coordinator.dispatcher
        if isinstance(body, Register):
            self._term = term
            registration = Registration(message.task_manager_id, message.token, body, self)  # type: ignore[arg-type]
            if not dispatcher.tell(term, lambda: term.task_managers.register(registration)):
                self.break_off("it does not lead any more")
        elif self._term is not None:
            dispatcher.tell(term, lambda: term.task_managers.received(self, message))  # type: ignore[arg-type]

    def _wait_for_grant(self, message: TaskManagerMessage) -> None:
        if not isinstance(message.body, Register):
            return
        self._waited_ms += 50
        if self._waited_ms > GRANT_WAIT_MS:
            self.break_off("it does not lead")
        else:
            self._coordinator.later(50, lambda: self._received(message))
