"""StandbyCopies: sends task managers the orders for local copies of snapshots. Actor thread only."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from lockgate_proto.messages import AttemptId, CopiesKept, KeepCopies, StandbyStatus

from lockgate_coordinator.graph.slots import RequestSlots
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_coordinator.job.kept_copies import KeptCopies
from lockgate_coordinator.job.local_copies import Copies, copies
from lockgate_coordinator.runtime.job_runner import JobRunner

_MOST_DROPS = 1_000
"""Ended runs of which a task manager is informed that registers afterwards."""


class StandbyCopies:
    """Of one term. send: to a task manager; free_slots: of every registered one, by its id."""

    def __init__(self, send: Callable[[str, KeepCopies], object], free_slots: Callable[[], Mapping[str, int]]) -> None:
        self._send = send
        self._free_slots = free_slots
        self._kept: dict[str, KeptCopies] = {}  # by key of each job that wants copies
        self._without: set[str] = set()  # keys of jobs that do not
        self._drops: deque[KeepCopies] = deque(maxlen=_MOST_DROPS)

    def runs(self, runner: JobRunner) -> None:
        """The job runs, perhaps since an earlier leader, whose orders are not known here."""
        if replicas := runner.query(lambda master: master.attempts.graph.standby_replicas):
            self._kept.setdefault(runner.key, KeptCopies(replicas))
        elif replicas == 0:
            self._without.add(runner.key)

    def completed(self, runner: JobRunner) -> None:
        """A checkpoint of the job is complete."""
        kept = self._kept.get(runner.key)
        if kept is None:
            return
        free_slots = self._free_slots()

        def found(master: JobMaster) -> Copies | None:
            return copies(master.attempts, master.checkpoints(), free_slots)

        newest, before = runner.query(found), kept.newest
        if newest is None:
            return
        kept.ordered(newest)
        for name, order in newest.orders.items():
            self._send(name, order)
        order = next(iter(newest.orders.values()))
        for name in (free_slots if before is None else before.orders).keys() - newest.orders.keys():
            self._send(name, KeepCopies(order.attempt, order.checkpoint_id))

    def reported(self, task_manager_id: str, report: CopiesKept) -> None:
        """A task manager is done with an order."""
        kept = self._kept.get(report.attempt.job_key) if report.attempt is not None else None
        if kept is not None:
            kept.reported(task_manager_id, report)

    def lost(self, task_manager_id: str) -> None:
        """Its process has ended."""
        for kept in self._kept.values():
            kept.lost(task_manager_id)

    def status(self, job_key: str) -> StandbyStatus | None:
        """For clients; None for a job without copies, and before its first checkpoint under this leader."""
        kept = self._kept.get(job_key)
        return kept.status() if kept is not None else None

    def preferring(self, request: RequestSlots) -> RequestSlots:
        """The request, in which the heirs are wanted for lost places."""
        kept = self._kept.get(request.job_key)
        if kept is None or kept.newest is None:
            return request
        return dataclasses.replace(request, preferred=kept.newest.preferred(request.preferred))

    def ended(self, job_key: str, run_id: str, task_managers: Iterable[str]) -> None:
        """The run has ended: its copies are dropped, also those that an earlier leader has ordered.

        Unless it is known to have none: it may never have run under this leader.
        """
        if self._kept.pop(job_key, None) is None and job_key in self._without:
            self._without.discard(job_key)
            return
        drop = KeepCopies(AttemptId(job_key, run_id))
        self._drops.append(drop)
        for name in task_managers:
            self._send(name, drop)

    def added(self, task_manager_id: str) -> None:
        """A task manager that missed orders has registered: it may have copies for runs that ended before."""
        for drop in self._drops:
            self._send(task_manager_id, drop)
