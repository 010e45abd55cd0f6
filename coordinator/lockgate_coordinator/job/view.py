"""The status of a job for clients."""

from __future__ import annotations

from datetime import UTC, datetime

from lockgate_proto.messages import (
    JobRecord,
    JobState,
    JobStatus,
    StorageTrouble,
)

from lockgate_coordinator.checkpoint.content import CheckpointSetting
from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.job.attempt import Attempt
from lockgate_coordinator.job.ending import Ending
from lockgate_coordinator.job.job_attempts import JobAttempts
from lockgate_coordinator.job.life import JobLife
from lockgate_coordinator.job.restart import Restarts


def job_status(
    record: JobRecord,
    setting: CheckpointSetting,
    life: JobLife,
    attempts: JobAttempts,
    snapshots: CheckpointCoordinator | None,
    restarts: Restarts,
    ending: Ending | None,
    not_written: str,
    *,
    with_subtasks: bool = True,
) -> JobStatus:
    """The status without the leader's address. not_written: why a record is not written yet.

    with_subtasks: False: only how many there are, and the backlog of all sources.
    """
    running = attempts.current.execution if attempts.current is not None else None
    trouble = snapshots.storage_trouble if snapshots is not None else None
    if (waited := restarts.storage.trouble) is not None:
        trouble = StorageTrouble(waited[0] + setting.unix_offset_ms, waited[1])
    operators = attempts.counters.views()
    read, written = attempts.counters.read_and_written(operators)
    return JobStatus(
        job_key=record.job_key,
        run_id=record.run_id,
        name=attempts.graph.name,
        state=life.state,
        message=status_message(life, ending, attempts.current, trouble, not_written),
        error=(ending.error if ending is not None else "") or life.error,
        ended_unix_ms=life.ended_ms + setting.unix_offset_ms if life.ended_ms is not None else 0,
        failure=restarts.failure,
        attempt=attempts.number,
        restarts=attempts.restarts,
        submitted_unix_ms=record.submitted_unix_ms,
        operators=operators,
        records_read=read,
        records_written=written,
        records_read_again=attempts.read_again.count,
        subtasks=running.views() if running is not None and with_subtasks else (),
        subtask_count=running.subtask_count if running is not None else 0,
        backlog=running.backlog().message() if running is not None and not with_subtasks else None,
        last_checkpoint=snapshots.completed.newest if snapshots is not None else None,
        checkpoints_completed=snapshots.completed_count if snapshots is not None else 0,
        checkpoints_aborted=snapshots.aborted_count if snapshots is not None else 0,
        token=setting.token,
        checkpoint_mode=setting.options.mode,
        straggler=attempts.stragglers.text,
        storage_trouble=trouble,
        edges=attempts.edges,
    )


def status_message(
    life: JobLife, ending: Ending | None, attempt: Attempt | None, trouble: StorageTrouble | None, not_written: str = ""
) -> str:
    """What a job waits for; "" for nothing."""
    state = life.state
    if life.has_ended:
        return ""
    if life.is_suspended:
        why = life.suspended_because and f" ({life.suspended_because})"
        return f"ZooKeeper is not reachable{why}: running subtasks continue, nothing new is started or completed"
    if ending is not None:
        return not_written or ending.message
    if state is JobState.DEPLOYING and attempt is not None and attempt.deployed_ms is not None:
        return f"waiting for {attempt.execution.missing()} to start"
    if trouble is not None:
        since = datetime.fromtimestamp(trouble.since_unix_ms / 1000, UTC).strftime("%H:%M:%S UTC")
        if state not in (JobState.RUNNING, JobState.FINISHING):
            return (
                f"the job has waited for its storage since {since}: {trouble.reason}; bring the storage back, then "
                f"the job continues automatically"
            )
        return (
            f"the job runs, but no checkpoint has completed since {since}: {trouble.reason}; make room in the storage "
            f"or bring it back, then the job continues automatically"
        )
    if state is JobState.FINISHING:
        return "all input is read: the last checkpoint is being taken and committed"
    return "" if state is JobState.RUNNING else not_written or life.message
