"""The part of a JobMaster that ends the job for good: what is complete is shown, then everything stops."""

from __future__ import annotations

from abc import abstractmethod

from lockgate_proto.messages import JobFailure, JobRecord, JobState

from coordinator.checkpoint.completed import CompletedCheckpoints
from coordinator.checkpoint.coordinator import CheckpointCoordinator
from coordinator.checkpoint.events import AttemptEnded
from coordinator.graph.shape import committers
from coordinator.graph.story import Story
from coordinator.recovery import effects, events
from coordinator.recovery.attempt import Attempt, AttemptFailed
from coordinator.recovery.ending import Ending
from coordinator.recovery.job_state import OUTCOMES
from coordinator.recovery.last_commit import LastCommit
from coordinator.recovery.record_writer import RecordWriter
from coordinator.recovery.redistribute import counted
from coordinator.recovery.replacing import Replacing
from coordinator.recovery.stale import StaleAttempt


class Closing(Replacing):
    """Decides nothing: an outcome comes in, and the job's last effects go out, in order."""

    _record: JobRecord
    _unix_offset_ms: int
    _story: Story
    _writer: RecordWriter
    _stale: StaleAttempt
    _ended_ms: int | None
    _error: str
    _failure: JobFailure | None
    _last_commit: LastCommit | None = None
    _shown_id = 0  # the newest checkpoint that every sink of an attempt before is known to have shown
    _busy = ""  # what was at work when the attempt was torn down
    _lost = ""  # the task manager that the job ends by, which cannot be told

    @abstractmethod
    def _move(self, state: JobState, now_ms: int) -> None: ...

    def _end(
        self,
        outcome: str,
        error: str,
        now_ms: int,
        *,
        keep_all: bool = False,
        failed: AttemptFailed | None = None,
        stopped_with: int = 0,
    ) -> None:
        """Decides how the job ends. Its result is written by _proceed, when no checkpoint is in doubt any more.

        failed: what it ends by, if that is a failure of the attempt. stopped_with: id of a stop's savepoint.
        """
        self._story.note(f"ends as {outcome} {error}", now_ms)
        self._ending = Ending(outcome, error, keep_all=keep_all, stopped_with=stopped_with)
        self._error = error or self._error
        self._message = "its end is being written"
        self._obey(self._orders.ended(f"The job has ended: {outcome.lower()}."), now_ms)
        if outcome == "FINISHED":
            return
        reason, attempt = error or "the job is cancelled", self._attempt
        if attempt is not None and attempt.deployed_ms is not None:
            self._writer.drop(now_ms)
            self._to_snapshots(AttemptEnded(reason), now_ms)
            self._last_commit = LastCommit(attempt, failed, self._shown_id, now_ms)
            self._lost = failed.lost if failed is not None else ""
        else:
            self._tear_down(reason, now_ms)
        self._out += self._stale.cancel(reason)

    def _tear_down(self, reason: str, now_ms: int, lost: str = "") -> None:
        """Ends the current attempt everywhere: nothing it says counts any more."""
        attempt, self._attempt = self._attempt, None
        self._writer.drop(now_ms)
        if attempt is not None:
            self._note_shown(attempt)
            self._out += attempt.cancel(reason, lost)
        self._to_snapshots(AttemptEnded(reason), now_ms)

    def _note_shown(self, attempt: Attempt) -> None:
        newest = self._snapshots.completed.restore_point if self._snapshots is not None else None
        if newest is not None and not attempt.not_shown(newest):
            self._shown_id = newest.checkpoint_id

    def _has_shown_the_last(self, ending: Ending, snapshots: CheckpointCoordinator, now_ms: int) -> bool:
        """True once the attempt is torn down; that waits until its sinks have shown the newest checkpoint."""
        last, attempt = self._last_commit, self._attempt
        if last is None or attempt is None:
            return True
        if not snapshots.settling:
            self._out += last.settled(snapshots.completed.restore_point)
        if not last.is_over(now_ms):
            self._message = "its sinks show what its last checkpoint holds"
            return False
        self._last_commit, complaint = None, last.complaint()
        self._message = "its end is being written"
        if complaint:
            self._error = ending.add(complaint)
        self._tear_down(ending.reason, now_ms, self._lost)
        self._busy = self._at_work.sentence(attempt.execution.task_manager_of)
        if ending.outcome == "CANCELED":
            ending.await_stop((one for one in attempt.execution.task_managers() if one != self._lost), now_ms)
        return True

    def _on_result_persisted(self, _event: events.ResultPersisted, now_ms: int) -> None:
        wanted = self._writer.wanted
        if self._ending is None or not isinstance(wanted, effects.PersistResult):
            return
        self._writer.drop(now_ms)
        if self._attempt is not None:
            self._tear_down("the job has finished", now_ms)
        self._move(OUTCOMES[self._ending.outcome], now_ms)
        self._ended_ms = now_ms
        self._out += [effects.ReleaseSlots(), effects.CleanUp(wanted.result.retained)]

    def _proceed_ending(self, ending: Ending, snapshots: CheckpointCoordinator, now_ms: int) -> None:
        if not self._has_shown_the_last(ending, snapshots, now_ms):
            return
        if not ending.take_due(snapshots.settling, now_ms):
            return
        completed = snapshots.completed
        if ending.outcome == "FINISHED":  # exact: what the terminal checkpoint holds
            self._counters.restore(counted(self._graph, completed.restore_point).values())
        elif complaint := self._left_unshown(ending, completed):
            self._error = ending.add(complaint)
        if ending.is_late and self._busy:
            self._error = ending.add(self._busy)
        ended_unix_ms = now_ms + self._unix_offset_ms
        counters, lasting = self._counters.totals(), completed.lasting()
        result = ending.result(
            self._record,
            self._graph,
            self._attempt_record(),
            lasting,
            counters,
            ended_unix_ms,
            self._failure,
        )
        self._writer.want(effects.PersistResult(result), now_ms)

    def _left_unshown(self, ending: Ending, completed: CompletedCheckpoints) -> str:
        """What may not be shown of a job that ends between two attempts, as a sentence; else "".

        It owes nothing of the snapshot of another job that it was to start from.
        """
        known = (completed.restore_point, completed.newest)
        if completed.newest is None and known[0] is not None and known[0].run_id != self._record.run_id:
            return ""
        newest_id = max((one.checkpoint_id for one in known if one is not None), default=0)
        is_shown = newest_id == self._shown_id or not committers(self._graph)
        if is_shown or ending.has_complaint or not self._attempt_number:
            return ""
        return (
            f"What checkpoint {newest_id} holds may be shown only in part: the job ended before another attempt could "
            f"commit it."
        )

    def _ending_wakes(self) -> list[int | None]:
        """When the end may go on without an event."""
        return [
            self._ending.next_wake_ms() if self._ending is not None else None,
            self._last_commit.next_wake_ms() if self._last_commit is not None else None,
        ]
