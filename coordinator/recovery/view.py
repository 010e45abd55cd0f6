"""What clients see of a job."""

from __future__ import annotations

from datetime import UTC, datetime

from lockgate_proto.messages import (
    AttemptRecord,
    CheckpointMode,
    JobFailure,
    JobRecord,
    JobState,
    JobStatus,
    StorageTrouble,
)

from coordinator.checkpoint.coordinator import CheckpointCoordinator
from coordinator.recovery.attempt import Attempt
from coordinator.recovery.counters import JobCounters


def job_status(
    record: JobRecord,
    name: str,
    state: JobState,
    *,
    message: str,
    error: str,
    failure: JobFailure | None,
    ended_unix_ms: int,
    newest: AttemptRecord,
    attempt: Attempt | None,
    snapshots: CheckpointCoordinator | None,
    counters: JobCounters,
    mode: CheckpointMode,
    straggler: str,
) -> JobStatus:
    """The status without the leader's address. newest: the last attempt; attempt: the same if it still lives."""
    return JobStatus(
        job_key=record.job_key,
        run_id=record.run_id,
        name=name,
        state=state,
        message=message,
        error=error,
        failure=failure,
        attempt=newest.attempt,
        restarts=newest.restarts,
        submitted_unix_ms=record.submitted_unix_ms,
        ended_unix_ms=ended_unix_ms,
        operators=counters.views(),
        subtasks=attempt.execution.views() if attempt is not None else (),
        last_checkpoint=snapshots.completed.newest if snapshots is not None else None,
        checkpoints_completed=snapshots.completed_count if snapshots is not None else 0,
        checkpoints_aborted=snapshots.aborted_count if snapshots is not None else 0,
        token=newest.token,
        checkpoint_mode=mode,
        straggler=straggler,
        storage_trouble=snapshots.storage_trouble if snapshots is not None else None,
    )


def waits_for(
    state: JobState,
    attempt: Attempt | None,
    noted: str,
    trouble: StorageTrouble | None,
    *,
    suspended: bool,
    ending: bool,
) -> str:
    """What a job that has not ended waits for, in words. noted: the last thing the JobMaster found worth saying."""
    if suspended:
        return "ZooKeeper is not reachable: what runs goes on, nothing new is started or completed"
    if ending:
        return noted
    if state is JobState.DEPLOYING and attempt is not None and attempt.deployed_ms is not None:
        return f"waiting for {', '.join(attempt.execution.missing())} to start"
    if trouble is not None:
        since = datetime.fromtimestamp(trouble.since_unix_ms / 1000, UTC).strftime("%H:%M:%S UTC")
        return (
            f"the job runs, but nothing was made durable since {since}: {trouble.reason}; make room in the storage or "
            f"bring it back, then the job goes on by itself"
        )
    if state is JobState.FINISHING:
        return "all input is read: the last checkpoint is being taken and committed"
    return "" if state is JobState.RUNNING else noted
