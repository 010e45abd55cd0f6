"""The end of a job: the last checkpoint is committed, everything stops, then the result is written.

decided --an attempt is deployed--> its sinks commit the last checkpoint (last_commit.py) --torn down--> stopping
   +----nothing is deployed, or all is committed------------------------------------------------------> stopping
stopping --no checkpoint is in doubt; of a cancelled job every subtask has stopped, or 5 s--> the result is wanted
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from lockgate_proto.messages import AttemptId, JobFailure, JobGraph, JobRecord, JobResult

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints, retained_after_end
from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.graph.shape import committers
from lockgate_coordinator.job.attempt import Attempt, AttemptFailed
from lockgate_coordinator.job.effects import Emit, Send
from lockgate_coordinator.job.events import (
    Committed,
    CountersReported,
    FirstRecordSeen,
    Gone,
    Reported,
    SplitsFound,
    StillRunning,
    TaskManagerLost,
    Tick,
)
from lockgate_coordinator.job.job_attempts import JobAttempts, TaskManagerEvent
from lockgate_coordinator.job.job_state import Outcome
from lockgate_coordinator.job.last_commit import LastCommit
from lockgate_coordinator.job.record_size import fitting

CANCEL_TIMEOUT_MS = 5_000
"""How long a cancelled job waits for its task managers to stop the subtasks."""


@dataclass(frozen=True, slots=True)
class TearDown:
    """To the JobMaster: cancel the attempt everywhere. lost: the task manager that is unreachable."""

    reason: str
    lost: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    """To the JobMaster: the result may be written."""


class Ending:
    """The end of a job, from the decision until the result is written."""

    def __init__(self, outcome: Outcome, error: str = "", *, keep_all: bool = False, stopped_with: int = 0) -> None:
        """keep_all: no checkpoint may be deleted.

        stopped_with: id of the savepoint that the job was stopped with, 0 when it ends otherwise.
        """
        self.outcome = outcome
        self.error = error
        self.message = "its end is being written"  # what the job waits for
        self._keep_all = keep_all
        self._stopped_with = stopped_with
        self._has_complaint = False  # the error names output that may not be committed
        self._attempt: Attempt | None = None  # the one that has to commit or stop
        self._last_commit: LastCommit | None = None
        self._lost = ""  # the task manager whose loss ends the job
        self._busy = ""  # what was at work when the attempt was torn down
        self._stopping: set[tuple[str, AttemptId]] = set()  # what runs on which task manager
        self._deadline_ms = 0
        self._is_late = False  # subtasks have not stopped in time
        self._is_given = False

    @property
    def reason(self) -> str:
        """The cancellation reason for the task managers."""
        return self.error or "the job is cancelled"

    def commit_last(self, attempt: Attempt, failed: AttemptFailed | None, committed_id: int, now_ms: int) -> None:
        """Lets the sinks of the deployed attempt commit the last completed checkpoint before it is torn down."""
        self._attempt = attempt
        self._last_commit = LastCommit(attempt, failed, committed_id, now_ms)
        self._lost = failed.lost if failed is not None else ""

    def handle(self, event: TaskManagerEvent, now_ms: int) -> list[Emit]:
        """Handles reports of task managers while the job ends."""
        match event:
            case Tick() | CountersReported() | StillRunning():
                return []
            case Reported() | Committed() | FirstRecordSeen() | SplitsFound():
                pass
            case TaskManagerLost(name):
                self._stopping = {item for item in self._stopping if item[0] != name}
            case Gone(name, gone):
                if gone.attempt is not None:
                    self._stopping.discard((name, gone.attempt))
            case _:
                assert_never(event)
        return self._last_commit.handle(event, now_ms) if self._last_commit is not None else []

    def proceed(
        self, snapshots: CheckpointCoordinator, attempts: JobAttempts, now_ms: int
    ) -> list[Send | TearDown | WriteResult]:
        """The effects that are due now; called after every event."""
        effects: list[Send | TearDown | WriteResult] = []
        if self._last_commit is not None:
            if not snapshots.settling:
                effects += self._last_commit.settled(snapshots.completed.restore_point)
            if not self._last_commit.is_over(now_ms):
                self.message = "its sinks show the output of its last checkpoint"
                return effects
            if complaint := self._last_commit.complaint():
                self._complain(complaint)
            effects.append(TearDown(self.reason, self._lost))
            self._await_stop(attempts.busy(), now_ms)
        if now_ms >= self._deadline_ms:
            self._is_late = bool(self._stopping) or self._is_late
            self._stopping.clear()
        if not (self._is_given or snapshots.settling or self._stopping):
            self._is_given = True
            effects.append(WriteResult())
        return effects

    def _await_stop(self, busy: str, now_ms: int) -> None:
        """Waits, up to a limit, until the subtasks of a cancelled job have stopped, which its result implies."""
        assert self._attempt is not None
        self._last_commit, self._busy, self.message = None, busy, "its end is being written"
        if self.outcome is Outcome.CANCELED:
            execution = self._attempt.execution
            names = (name for name in execution.task_managers() if name != self._lost)
            self._stopping = {(name, known) for name in names for known in execution.ids_on(name)}
            self._deadline_ms = now_ms + CANCEL_TIMEOUT_MS

    def next_wake_ms(self) -> int | None:
        """When `proceed` may have something to do without an event."""
        if self._last_commit is not None:
            return self._last_commit.next_wake_ms()
        return self._deadline_ms if self._stopping else None

    def result(
        self,
        record: JobRecord,
        attempts: JobAttempts,
        completed: CompletedCheckpoints,
        ended_unix_ms: int,
        failure: JobFailure | None = None,
    ) -> JobResult:
        """The record for /results/<key>. failure: of the last failed attempt."""
        if self.outcome is Outcome.FINISHED:  # exact: what the terminal checkpoint holds
            attempts.count_from(completed.restore_point)
        elif complaint := self._uncommitted(record, attempts, completed):
            self._complain(complaint)
        if self._is_late and self._busy:
            self._complain(self._busy)
        counters = attempts.counters.totals()
        read, written = attempts.counters.read_and_written(counters)
        lasting, keep_newest = completed.lasting(), self._keeps_newest(attempts.graph)
        result = JobResult(
            job_key=record.job_key,
            run_id=record.run_id,
            name=attempts.graph.name,
            outcome=self.outcome.value,
            error=self.error,
            submitted_unix_ms=record.submitted_unix_ms,
            ended_unix_ms=ended_unix_ms,
            dirty=True,
            graph_checksum=record.graph_checksum,
            last_checkpoint=lasting[0] if lasting else None,
            counters=counters,
            records_read=read,
            records_written=written,
            attempt=attempts.number,
            restarts=attempts.restarts,
            token=attempts.token,
            storage=record.storage,
            restore_from=record.restore_from,
            stopped_with=self._stopped_with,
            keep_files=self._keep_all,  # even if the records that name them cannot be read
            retained=retained_after_end(lasting, keep_newest=keep_newest, keep_all=self._keep_all),
            failure=failure,
        )
        return fitting(result)

    def _complain(self, complaint: str) -> None:
        self._has_complaint = True
        self.error = f"{self.error}\n{complaint}".strip()

    def _uncommitted(self, record: JobRecord, attempts: JobAttempts, completed: CompletedCheckpoints) -> str:
        """The output that may be uncommitted when a job ends between two attempts, as a sentence; else "".

        The snapshot of another job, from which it was to start, does not count.
        """
        restored, newest = completed.restore_point, completed.newest
        is_foreign = newest is None and restored is not None and restored.run_id != record.run_id
        newest_id = max((known.checkpoint_id for known in (restored, newest) if known is not None), default=0)
        is_committed = newest_id == attempts.committed_id or not committers(attempts.graph)
        if is_foreign or is_committed or self._has_complaint or not attempts.number:
            return ""
        return (
            f"Checkpoint {newest_id} may be only partially committed: the job ended before another attempt "
            f"could commit it."
        )

    def _keeps_newest(self, graph: JobGraph) -> bool:
        """Failed jobs keep the newest checkpoint for repair; stopped ones their savepoint, which is as new; for others
        the job's option decides.
        """
        asked = graph.checkpoints is not None and graph.checkpoints.retain_after_end
        return self.outcome is Outcome.FAILED or (asked and not self._stopped_with)
