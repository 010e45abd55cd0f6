"""Rescaling a job and waiting until it runs with the new parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lockgate_proto.messages import JobState, JobStatus

from lockgate.client.client import Client
from lockgate.client.deadline import Deadline
from lockgate.client.errors import ClientError, JobFailed
from lockgate.client.watch import TERMINAL

PATIENCE_MS = 120_000
_RUNS = (JobState.RUNNING, JobState.FINISHING)
_POLL_MS = 1_000


def rescale(client: Client, key: str, parallelism: Mapping[str, int], timeout_ms: int = 0) -> JobStatus:
    """Changes the parallelism of vertices and returns the status in which the job runs with it, or has ended.

    Raises ClientError when the change is refused, or the job does not run within two minutes; in that case the change
    remains in effect.
    """
    answer = client.rescale(key, parallelism, timeout_ms)
    wanted = {subtask.vertex_id: subtask.parallelism for subtask in answer.parallelism}
    watch, deadline = client.watch(key), Deadline(PATIENCE_MS)
    try:
        while True:
            update = watch.poll(deadline.remaining_s(_POLL_MS / 1000) * 1000)
            if isinstance(update, JobStatus) and _is_there(update, wanted):
                return update
            if deadline.expired:
                raise ClientError(
                    f"job {key!r} is rescaled but not running yet; `lockgate job {key}` shows what it is waiting for"
                )
    finally:
        watch.close()


def _is_there(status: JobStatus, wanted: Mapping[str, int]) -> bool:
    if status.state is JobState.FAILED:
        raise JobFailed(status.error or f"job {status.job_key!r} failed")
    if status.state in TERMINAL:
        return True
    return status.state in _RUNS and Counter(subtask.vertex_id for subtask in status.subtasks) == wanted
