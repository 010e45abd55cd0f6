"""CopyKeeper: fetches the files of newest snapshots to this machine in the background, so that a restart reads none."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

from lockgate_common.masking import masked
from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.messages import CopiesKept, KeepCopies, StateHandle

from lockgate_taskmanager.state.backend import download
from lockgate_taskmanager.state.local_copies import LocalCopies
from lockgate_taskmanager.task.program import ProgramError

log = logging.getLogger(__name__)

MOST_TEXT = 1_000
"""Characters of a problem, as reported to the leader."""


class CopyKeeper:
    """Carries out the newest order of each job, one file at a time, on a thread of its own.

    report: is called on that thread, once for each order, when nothing more is done for it.
    """

    def __init__(self, copies: LocalCopies, report: Callable[[CopiesKept], None]) -> None:
        self._copies, self._report = copies, report
        self._orders: OrderedDict[str, KeepCopies] = OrderedDict()  # waiting, by run id
        self._changed = threading.Condition()
        self._is_stopping = False
        self._trouble = RecurringLog()
        self._thread = threading.Thread(target=self._run, name="copies", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def keep(self, order: KeepCopies) -> None:
        """Replaces the order for this run that is not carried out yet. Returns at once."""
        if order.attempt is not None:
            with self._changed:
                self._orders[order.attempt.run_id] = order
                self._changed.notify_all()

    def stop(self) -> None:
        """Ends after the file that is being fetched; does not wait for it, as the storage may hang."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def _run(self) -> None:
        while self._wait():
            for _ in self.steps():
                pass

    def _wait(self) -> bool:
        """For an order. False when this ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or bool(self._orders))
            return not self._is_stopping

    def steps(self) -> Iterator[None]:
        """Carries out what waits; one step for each file that is fetched. Raises nothing."""
        while (found := self._next()) is not None:
            run_id, order = found
            problem, job = "", order.attempt.job_key if order.attempt is not None else ""
            try:
                yield from self._carry_out(run_id, order)
            except (ProgramError, OSError, ValueError) as error:
                if not self._is_outdated(run_id):  # the files of a subsumed checkpoint are gone
                    problem = masked(str(error))[:MOST_TEXT]
                    text = "job %s: no local copies of checkpoint %d: %s"
                    self._trouble.warning(log, run_id, text, job, order.checkpoint_id, error)
            except Exception:
                problem = "internal error of the task manager, see its log"
                text = "job %s: internal error while keeping copies of checkpoint %d"
                self._trouble.error(log, f"internal {run_id}", text, job, order.checkpoint_id, exc_info=True)
            if order.checkpoint_id:
                here = self._copies.count(run_id, order.files)
                self._report(CopiesKept(order.attempt, order.checkpoint_id, here, problem))

    def _next(self) -> tuple[str, KeepCopies] | None:
        with self._changed:
            return None if self._is_stopping or not self._orders else self._orders.popitem(last=False)

    def _carry_out(self, run_id: str, order: KeepCopies) -> Iterator[None]:
        if not order.checkpoint_id:
            self._copies.forget_run(run_id)
            return
        for handle in self._copies.keep(run_id, order.checkpoint_id, order.files):
            if self._is_outdated(run_id):
                return
            self._fetch(run_id, order.checkpoint_id, handle)
            yield

    def _is_outdated(self, run_id: str) -> bool:
        """A newer snapshot is wanted, or nothing any more."""
        with self._changed:
            return self._is_stopping or run_id in self._orders

    def _fetch(self, run_id: str, checkpoint_id: int, handle: StateHandle) -> None:
        file = self._copies.new_file()
        self._copies.require_room(handle.size_bytes)
        try:
            download(handle, file)
            self._copies.add(run_id, checkpoint_id, handle, file)
        finally:
            file.unlink(missing_ok=True)
