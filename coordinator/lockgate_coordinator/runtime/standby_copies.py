"""StandbyCopies: sends task managers the orders for local copies of snapshots. Actor thread only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from lockgate_proto.messages import KeepCopies

from lockgate_coordinator.graph.slots import SlotsRequested
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_coordinator.job.local_copies import Copies, copies
from lockgate_coordinator.runtime.job_runner import JobRunner


class StandbyCopies:
    """Of one term. send: to a task manager; free_slots: of every registered one, by its id."""

    def __init__(self, send: Callable[[str, KeepCopies], object], free_slots: Callable[[], Mapping[str, int]]) -> None:
        self._send = send
        self._free_slots = free_slots
        self._newest: dict[str, Copies | None] = {}  # by key of each job that wants copies

    def runs(self, runner: JobRunner) -> None:
        """The job runs, perhaps since an earlier leader, whose orders are not known here."""
        if runner.query(lambda master: master.attempts.graph.standby_replicas):
            self._newest.setdefault(runner.key, None)

    def completed(self, runner: JobRunner) -> None:
        """A checkpoint of the job is complete."""
        if runner.key not in self._newest:
            return
        free_slots = self._free_slots()

        def found(master: JobMaster) -> Copies | None:
            return copies(master.attempts, master.checkpoints(), free_slots)

        newest, before = runner.query(found), self._newest[runner.key]
        if newest is None:
            return
        self._newest[runner.key] = newest
        for name, order in newest.orders.items():
            self._send(name, order)
        order = next(iter(newest.orders.values()))
        for name in (free_slots if before is None else before.orders).keys() - newest.orders.keys():
            self._send(name, KeepCopies(order.attempt, order.checkpoint_id))

    def preferring(self, request: SlotsRequested) -> SlotsRequested:
        """The request, in which the heirs are wanted for lost places."""
        newest = self._newest.get(request.job_key)
        if newest is None:
            return request
        return dataclasses.replace(request, preferred=newest.preferred(request.preferred))

    def ended(self, runner: JobRunner, task_managers: Iterable[str]) -> None:
        """The job has ended: its copies are dropped, also those that an earlier leader has ordered."""
        if runner.key in self._newest:
            del self._newest[runner.key]
            for name in task_managers:
                self._send(name, KeepCopies(runner.attempt))
