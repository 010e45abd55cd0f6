"""Which task managers have every file of a job's newest snapshot, from the orders and from what they report. Pure."""

from __future__ import annotations

from lockgate_proto.messages import CopiesKept, CopyStatus, StandbyStatus

from lockgate_coordinator.job.local_copies import MOST_FILES, Copies


class KeptCopies:
    """Of one job, under one leader. replicas: how many standbys it asks for, for each task manager that it runs on."""

    def __init__(self, replicas: int) -> None:
        self.newest: Copies | None = None
        """What was ordered last."""
        self._replicas = replicas
        self._sizes: dict[str, int] = {}  # of the files in each order of these, in bytes
        self._reported: dict[str, CopiesKept] = {}  # for the newest order, by task manager id
        self._complete: dict[str, int] = {}  # the newest checkpoint of which each had everything

    def ordered(self, copies: Copies) -> None:
        """A newer snapshot is wanted: what was reported for the one before says nothing about it."""
        self.newest = copies
        self._sizes = {name: sum(file.size_bytes for file in order.files) for name, order in copies.orders.items()}
        self._reported.clear()

    def reported(self, task_manager_id: str, report: CopiesKept) -> None:
        """A task manager is done with an order. For another than the newest one it changes nothing."""
        order = self.newest.orders.get(task_manager_id) if self.newest is not None else None
        if order is None or (order.attempt, order.checkpoint_id) != (report.attempt, report.checkpoint_id):
            return
        self._reported[task_manager_id] = report
        if self._is_complete(task_manager_id):
            self._complete[task_manager_id] = report.checkpoint_id

    def lost(self, task_manager_id: str) -> None:
        """Its process has ended, and its copies with it."""
        self._reported.pop(task_manager_id, None)
        self._complete.pop(task_manager_id, None)

    def status(self) -> StandbyStatus | None:
        """For clients; None before the first order."""
        if self.newest is None:
            return None
        heirs = self.newest.heirs
        return StandbyStatus(
            wanted=self._replicas * len(heirs),
            complete=sum(self._is_complete(name) for found in heirs.values() for name in found),
            keepers=tuple(self._keeper(self.newest, name) for name in sorted(self.newest.orders)),
        )

    def _is_complete(self, name: str) -> bool:
        report = self._reported.get(name)
        if self.newest is None or report is None or name in self.newest.too_many:
            return False
        return report.files == len(self.newest.orders[name].files)

    def _keeper(self, newest: Copies, name: str) -> CopyStatus:
        order, report, too_many = newest.orders[name], self._reported.get(name), newest.too_many.get(name)
        problem = f"no copies are kept of more than {MOST_FILES} files" if too_many is not None else ""
        return CopyStatus(
            task_manager_id=name,
            stands_by_for=tuple(place for place, found in newest.heirs.items() if name in found),
            checkpoint_id=order.checkpoint_id,
            files=len(order.files) if too_many is None else too_many,
            size_bytes=self._sizes[name],
            files_kept=report.files if report is not None else None,
            complete_id=self._complete.get(name, 0),
            problem=problem or (report.problem if report is not None else ""),
        )
