"""A client that orders something of a job while it runs, and asks again until it has an answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from lockgate_common.serving.refusals import Refused
from lockgate_coordinator.runtime.errors import Busy
from lockgate_proto.messages import CompletedCheckpoint, JobState, RescaleResponse, VertexParallelism

from tests.simulation.coordinator import SimulatedCoordinator
from tests.simulation.oracle import Oracle
from tests.simulation.world import World

PATIENCE_MS = 400


@dataclass(frozen=True)
class Order:
    """parallelism: wanted of `vertices`, 0 for a stop; drain: how to stop; cancel, savepoint: instead of it."""

    parallelism: int = 0
    vertices: tuple[str, ...] = ("count", "ledger")
    drain: bool = False
    cancel: bool = False
    savepoint: bool = False

    @property
    def widths(self) -> tuple[tuple[str, int], ...]:
        """(vertex, parallelism) of a rescale."""
        return tuple((name, self.parallelism) for name in self.vertices)


class OrderingClient:
    """One order of one job."""

    def __init__(
        self,
        world: World,
        key: str,
        order: Order,
        oracle: Oracle,
        leader: Callable[[], SimulatedCoordinator | None],
        name: str,
    ) -> None:
        """name: request id of a savepoint."""
        self._name = name
        self._world, self._key, self._order, self._oracle, self._leader = world, key, order, oracle, leader
        self._is_answered = False

    def ask(self) -> None:
        """Asks whoever leads; again after a while, unless there was an answer or the job has ended."""
        if self._is_answered or self._oracle.result(self._key) is not None:
            return
        leader = self._leader()
        if leader is not None:
            leader.later(self._world.delay(0.5, 5), lambda: self._arrive(leader))
        self._world.schedule(self._world.delay(PATIENCE_MS, 2 * PATIENCE_MS), self.ask)

    def _arrive(self, leader: SimulatedCoordinator) -> None:
        """The request is in the coordinator's process; it may not lead any more."""
        term = leader.dispatcher.term
        runner = term.jobs.get(self._key) if term is not None and not term.suspended else None
        if runner is None:
            return
        answer: Future[Any]
        if self._order.cancel:
            self._oracle.may_be_cancelled(self._key)
            try:
                answer = runner.cancel()
            except Busy:  # the new leader has not read the job; it is asked again
                return
        elif self._order.parallelism:
            self._oracle.asked_for(self._key, self._order.widths)
            answer = runner.rescale(tuple(VertexParallelism(*width) for width in self._order.widths), 0)
        elif self._order.savepoint:
            answer = runner.savepoint(0, self._name)
        else:
            answer = runner.stop(self._order.drain, 0)
        answer.add_done_callback(self._answered)

    def _answered(self, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is not None:
            if not isinstance(error, Refused):
                return
            self._world.note("client", f"{self._key} is refused: {error}")  # no slots, or another order
            return
        self._is_answered = True
        found = answer.result()
        if isinstance(found, RescaleResponse):
            self._world.note("client", f"{self._key} is rescaled after attempt {found.after_attempt}")
            self._oracle.acknowledged_shape(self._key, self._order.widths)
        elif isinstance(found, JobState):
            self._world.note("client", f"{self._key} is {found.name}")
        elif self._order.savepoint:
            self._world.note("client", f"{self._key} has savepoint {found.checkpoint_id}")
            self._oracle.acknowledged_savepoint(self._key, found.checkpoint_id, self._name)
            self._is_answered = self._world.chance(0.5)  # some try again although they know
        else:
            assert isinstance(found, CompletedCheckpoint)
            self._world.note("client", f"{self._key} is stopped with savepoint {found.checkpoint_id}")
            self._oracle.acknowledged_stop(self._key, found.checkpoint_id)
