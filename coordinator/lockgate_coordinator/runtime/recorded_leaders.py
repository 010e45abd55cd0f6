"""The history of the cluster's leaders, to which a new one adds itself. Actor thread only."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from lockgate_common.clock import monotonic_ms
from lockgate_ha.grant import LeadershipGrant
from lockgate_proto.messages import LeadershipRecord

from lockgate_coordinator.runtime.coordinator_services import CoordinatorServices
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_coordinator.runtime.workers import WorkerGroup

RECORDED_AFTER_MS = 1_000
"""Not at once: the recovery of the jobs waits for what ZooKeeper has to write meanwhile."""


class RecordedLeaders:
    """Of one term. Only for display: if it cannot be written, nothing else is affected."""

    def __init__(
        self,
        fence: TermFence,
        services: CoordinatorServices,
        workers: WorkerGroup,
        persistence: Persistence,
        granted_unix_us: int,
        detected_unix_us: int | None,
    ) -> None:
        """detected_unix_us: when the loss of the leader before was noticed, if it was lost."""
        self.known: tuple[LeadershipRecord, ...] = ()
        """The newest last, with this one; empty until it is recorded."""
        grant: LeadershipGrant = fence.grant
        leader = LeadershipRecord(grant.token, grant.coordinator_id, services.address, granted_unix_us)
        self._record = partial(persistence.note_leader, leader, detected_unix_us)
        self._fence, self._actor, self._workers = fence, services.actor, workers

    def record_soon(self) -> None:
        """The jobs are known."""
        self._actor.at(monotonic_ms() + RECORDED_AFTER_MS, self._begin)

    def _begin(self) -> None:
        if not self._fence.over.is_set():
            work = self._workers.submit("(leaders)", self._record)
            work.add_done_callback(lambda done: self._actor.tell(partial(self._recorded, done)))

    def _recorded(self, done: Future[tuple[LeadershipRecord, ...]]) -> None:
        if done.exception() is None:  # else the term is over
            self.known = done.result()
