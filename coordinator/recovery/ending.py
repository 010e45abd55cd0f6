"""How a job ends: what has to happen before its result is written, and the result."""

from __future__ import annotations

from collections.abc import Iterable

from lockgate_proto.messages import (
    AttemptRecord,
    CompletedCheckpoint,
    JobFailure,
    JobGraph,
    JobRecord,
    JobResult,
    OperatorCounters,
)

from coordinator.checkpoint.completed import retained_after_end

CANCEL_TIMEOUT_MS = 5_000
"""A cancelled job does not wait longer for its task managers to stop the subtasks."""


class Ending:
    """The end that has been decided and is not written yet."""

    def __init__(self, outcome: str, error: str = "", *, keep_all: bool = False, stopped_with: int = 0) -> None:
        """outcome: FINISHED, FAILED or CANCELED. keep_all: no checkpoint may be deleted.

        stopped_with: id of the savepoint that the job was stopped with, 0 when it ends otherwise.
        """
        self.outcome = outcome
        self._error = error
        self._keep_all = keep_all
        self._stopped_with = stopped_with
        self._has_complaint = False
        self._stopping: set[str] = set()
        self._deadline_ms = 0
        self.is_late = False  # subtasks have not stopped in time
        self._given = False

    @property
    def reason(self) -> str:
        """Why the subtasks have to stop, for their task managers."""
        return self._error or "the job is cancelled"

    @property
    def has_complaint(self) -> bool:
        """True once the result says what may not be shown."""
        return self._has_complaint

    def add(self, complaint: str) -> str:
        """A sentence in the result about what may not be shown; returns all of them."""
        self._has_complaint = True
        self._error = f"{self._error}\n{complaint}".strip()
        return self._error

    def await_stop(self, task_managers: Iterable[str], now_ms: int) -> None:
        """The result says that the subtasks there have stopped; waits for it, but not for ever."""
        self._stopping = set(task_managers)
        self._deadline_ms = now_ms + CANCEL_TIMEOUT_MS

    def stopped(self, task_manager_id: str) -> None:
        """The subtasks there have ended, or the task manager has."""
        self._stopping.discard(task_manager_id)

    def take_due(self, settling: bool, now_ms: int) -> bool:
        """True once: when the result may be written. settling: a checkpoint's outcome is still unknown."""
        if now_ms >= self._deadline_ms:
            self.is_late = bool(self._stopping) or self.is_late
            self._stopping.clear()
        if self._given or settling or self._stopping:
            return False
        self._given = True
        return True

    def next_wake_ms(self) -> int | None:
        """When take_due may have changed without an event."""
        return self._deadline_ms if self._stopping else None

    def result(
        self,
        record: JobRecord,
        graph: JobGraph,
        attempt: AttemptRecord,
        completed: tuple[CompletedCheckpoint, ...],
        counters: tuple[OperatorCounters, ...],
        ended_unix_ms: int,
        failure: JobFailure | None = None,
    ) -> JobResult:
        """The record for /results/<key>. attempt: the last one. completed: newest first, `metadata` empty.

        failure: of the last attempt that has failed.
        """
        return JobResult(
            job_key=record.job_key,
            run_id=record.run_id,
            name=graph.name,
            outcome=self.outcome,
            error=self._error,
            submitted_unix_ms=record.submitted_unix_ms,
            ended_unix_ms=ended_unix_ms,
            dirty=True,
            graph_checksum=record.graph_checksum,
            last_checkpoint=completed[0] if completed else None,
            counters=counters,
            attempt=attempt.attempt,
            restarts=attempt.restarts,
            token=attempt.token,
            storage=record.storage,
            restore_from=record.restore_from,
            stopped_with=self._stopped_with,
            keep_files=self._keep_all,  # also where the records that would name them cannot be read
            retained=retained_after_end(completed, keep_newest=self._keeps_newest(graph), keep_all=self._keep_all),
            failure=failure,
        )

    def _keeps_newest(self, graph: JobGraph) -> bool:
        """Whoever has a failed job to repair decides when its state goes; a cancelled one's author has decided."""
        asked = graph.checkpoints is not None and graph.checkpoints.retain_after_end
        return self.outcome == "FAILED" or (asked and self.outcome != "FINISHED")
