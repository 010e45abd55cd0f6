"""Converts records to the form for clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_proto.messages import AttemptId, JobRecord, JobResult, JobState, JobStatus, TaskManagerStatus

from lockgate_coordinator.graph.slots import SlotCount
from lockgate_coordinator.job.counters import operator_status
from lockgate_coordinator.runtime.errors import Busy


def status_of(result: JobResult, leader_address: str) -> JobStatus:
    """The status of an ended job, from its result."""
    return JobStatus(
        job_key=result.job_key,
        run_id=result.run_id,
        name=result.name,
        state=JobState[result.outcome] if result.outcome in JobState.__members__ else JobState.JOB_STATE_UNSPECIFIED,
        error=result.error,
        failure=result.failure,
        attempt=result.attempt,
        restarts=result.restarts,
        submitted_unix_ms=result.submitted_unix_ms,
        ended_unix_ms=result.ended_unix_ms,
        operators=tuple(map(operator_status, result.counters)),
        records_read=result.records_read,
        records_written=result.records_written,
        last_checkpoint=result.last_checkpoint,
        token=result.token,
        leader_address=leader_address,
    )


def status_without_master(
    record: JobRecord, state: JobState, attempt: AttemptId | None, token: int, error: str, trouble: str
) -> JobStatus:
    """The status of a job that cannot run, or not yet. trouble: why its records cannot be read at present."""
    return JobStatus(
        job_key=record.job_key,
        run_id=record.run_id,
        state=state,
        message="" if error else trouble or "its records are being read",
        error=error,
        submitted_unix_ms=record.submitted_unix_ms,
        attempt=attempt.attempt if attempt is not None else 0,
        token=token,
    )


def task_manager_statuses(found: Iterable[SlotCount], pids: Mapping[str, int]) -> tuple[TaskManagerStatus, ...]:
    """pids: by id, as far as they are known."""
    return tuple(
        TaskManagerStatus(
            task_manager.task_manager_id,
            task_manager.exchange_address,
            pids.get(task_manager.task_manager_id, 0),
            task_manager.slots,
            task_manager.free_slots,
        )
        for task_manager in found
    )


def not_read(key: str, trouble: str) -> Busy:
    """The error for a job that is not read yet. trouble: why, "" while it is being read."""
    return Busy(f"job {key}: {trouble or 'its records are being read'}; try again")


def no_such_job(key: str) -> Refused:
    """The error for an unknown key."""
    return Refused(
        StatusCode.NOT_FOUND, f"there is no job with the key {key!r}; `lockgate jobs` lists the existing jobs"
    )


def other_job(key: str) -> Refused:
    """The error for a key that is taken."""
    return Refused(
        StatusCode.ALREADY_EXISTS,
        f"the job key {key!r} belongs to another job graph, or was submitted with other rights (with the role code or"
        f" without); choose another key (a key names one job permanently). If the"
        f" pipeline is the same and has Python functions, submit it with `lockgate submit`, or under the same"
        f" PYTHONHASHSEED: a set in a function is pickled in another order in each process",
    )


def other_start(key: str, restore_from: str) -> Refused:
    """The error for the same graph and key with another start. restore_from: of the existing job."""
    start = f"from {restore_from}" if restore_from else "without a snapshot to start from"
    return Refused(
        StatusCode.ALREADY_EXISTS,
        f"the job key {key!r} belongs to a job that was submitted {start}; to start from another one, choose another "
        f"key (a key names one job permanently)",
    )


def given_up(record: JobRecord, error: str, ended_unix_ms: int, token: int) -> JobResult:
    """The result of a job that was cancelled because it could not run. error: why it could not."""
    return JobResult(
        job_key=record.job_key,
        run_id=record.run_id,
        outcome=JobState.CANCELED.name,
        error=error,
        submitted_unix_ms=record.submitted_unix_ms,
        ended_unix_ms=ended_unix_ms,
        dirty=True,
        graph_checksum=record.graph_checksum,
        token=token,
        storage=record.storage,
        restore_from=record.restore_from,
    )
