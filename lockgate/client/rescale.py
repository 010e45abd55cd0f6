"""Rescaling a job and waiting until it runs with the new parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

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

    parallelism: by vertex, or by the id or name of an operator in it.
    Raises ClientError when the change is refused, or the job does not run within two minutes; in that case the change
    remains in effect.
    """
    vertices = by_vertex(client.job(key), parallelism)
    asked: dict[str, int] = {}
    for name, subtasks in parallelism.items():
        if asked.setdefault(vertices[name], subtasks) != subtasks:
            raise ClientError(f"{name!r} is in vertex {vertices[name]!r}, for which another number is given, too")
    answer = client.rescale(key, asked, timeout_ms)
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


def by_vertex(status: JobStatus, names: Iterable[str]) -> dict[str, str]:
    """The vertex of each name: of a vertex, of an operator by id, or by its name if one vertex alone has such.

    A name that the job does not have stays as it is: the leader refuses it. Raises ClientError for an ambiguous one.
    """
    ids = {operator.vertex_id for operator in status.operators}
    found: dict[str, str] = {}
    for name in names:
        vertices = {operator.vertex_id for operator in status.operators if operator.operator_id == name}
        vertices = vertices or {operator.vertex_id for operator in status.operators if operator.name == name}
        if name not in ids and len(vertices) > 1:
            known = ", ".join(operator.operator_id for operator in status.operators if operator.name == name)
            raise ClientError(f"several operators are named {name!r}; give the id of one: {known}")
        found[name] = name if name in ids or not vertices else vertices.pop()
    return found


def _is_there(status: JobStatus, wanted: Mapping[str, int]) -> bool:
    if status.state is JobState.FAILED:
        raise JobFailed(status.error or f"job {status.job_key!r} failed")
    if status.state in TERMINAL:
        return True
    return status.state in _RUNS and Counter(subtask.vertex_id for subtask in status.subtasks) == wanted
