"""Every path of the JSON API, with what it needs and gives. The router, the OpenAPI description and the matrix of roles
in the tests come from this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lockgate_common.roles import Role

from lockgate_web import orders, reads
from lockgate_web.asked import Asked, Body, LoginBody, Nothing, RescaleBody, SavepointBody, StopBody
from lockgate_web.schemas import Schema, named

API = "/api/v1"
_PAGE: dict[str, Schema] = {"vertex": {"type": "string"}, "offset": {"type": "integer"}}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """handle: None for endpoints that the app itself answers; role: None if no credentials are needed.

    rpc: the call of the job API that decides about the role; answer: JSON schema, of a stream that of its events.
    """

    method: str
    path: str
    summary: str
    answer: Schema
    role: Role | None = Role.READ
    rpc: str = ""
    handle: Callable[[Asked], Any] | None = None
    body: type[Body] | None = None
    is_stream: bool = False
    query: dict[str, Schema] = field(default_factory=dict)


def _list_of(name: str) -> Schema:
    return {"type": "array", "items": named(name)}


def _order(
    name: str, summary: str, answer: str, rpc: str, body: type[Body], handle: Callable[[Asked], Any]
) -> Endpoint:
    path = f"{API}/jobs/{{key}}/{name}"
    return Endpoint("POST", path, summary, named(answer), Role.OPERATE, rpc, handle, body)


def endpoints(found: reads.Reads) -> tuple[Endpoint, ...]:
    """All of them."""
    job = f"{API}/jobs/{{key}}"
    return (
        Endpoint("GET", f"{API}/cluster", "Coordinators, task managers, and how many jobs are in each state",
                 named("Cluster"), rpc="GetCluster", handle=found.cluster),
        Endpoint("GET", f"{API}/overview", "The cluster and its jobs at a glance", named("Overview"), rpc="GetCluster",
                 handle=found.overview),
        Endpoint("GET", f"{API}/events", "The overview about once a second, as server-sent events: overview, failure",
                 named("Overview"), rpc="GetCluster", is_stream=True),
        Endpoint("GET", f"{API}/jobs", "Jobs, newest first", _list_of("JobSummary"), rpc="List", handle=reads.jobs),
        Endpoint("GET", job, "One job", named("Job"), rpc="Get", handle=reads.job),
        Endpoint("GET", f"{job}/events", "Changes of a job as server-sent events: status, event (Event), lost, "
                 "failure, end", named("JobByVertex"), rpc="Watch", is_stream=True),
        Endpoint("GET", f"{job}/graph", "The graph of a job, with its layout", named("Graph"), rpc="Get",
                 handle=reads.graph),
        Endpoint("GET", f"{job}/reads", "What the sources of a running job had read, second by second, in the last ten "
                 "minutes of its leader", named("Reads"), rpc="Get", handle=reads.reads),
        Endpoint("GET", f"{job}/subtasks", "A page of a job's subtasks", named("Subtasks"), rpc="Get",
                 handle=reads.subtasks, query=_PAGE),
        Endpoint("GET", f"{job}/checkpoints", "Completed checkpoints and savepoints, newest first",
                 _list_of("Checkpoint"), rpc="ListCheckpoints", handle=reads.checkpoints),
        Endpoint("GET", f"{job}/checkpoints/history", "What became of the newest checkpoints and savepoints, as far as "
                 "the leader has seen it, newest first: completed, and retained or not, or aborted, and why",
                 _list_of("CheckpointOutcome"), rpc="ListCheckpoints", handle=reads.checkpoint_history),
        Endpoint("GET", f"{job}/checkpoints/{{id}}", "A page of what each subtask contributed to a checkpoint, slowest "
                 "first; empty when that is not kept", named("CheckpointParts"), rpc="GetCheckpoint",
                 handle=reads.checkpoint_parts, query=_PAGE),
        Endpoint("GET", f"{job}/story", "What happened to a job, and what caused what", named("Story"), rpc="GetStory",
                 handle=reads.story),
        _order("savepoint", "Take a savepoint; answers when it is complete", "Checkpoint", "TriggerSavepoint",
               SavepointBody, orders.savepoint),
        _order("stop", "End a job with a savepoint; answers when that is complete", "Checkpoint", "Stop", StopBody,
               orders.stop),
        _order("cancel", "End a job without a savepoint", "State", "Cancel", Nothing, orders.cancel),
        _order("rescale", "Change the parallelism of vertices", "Rescaled", "Rescale", RescaleBody, orders.rescale),
        _order("release", "Retry a job that is held back", "State", "Release", Nothing, orders.release),
        _order("savepoints/{id}/dispose", "Delete a savepoint for good", "Disposed", "DisposeSavepoint", Nothing,
               orders.dispose),
        Endpoint("GET", f"{API}/session", "The caller, the cluster's name, and its other coordinators' dashboards",
                 named("Session"), role=Role.READ),
        Endpoint("POST", f"{API}/login", "Log a browser in with a token: sets a cookie", named("Session"), role=None,
                 body=LoginBody),
        Endpoint("POST", f"{API}/logout", "Log a browser out: removes the cookie", {"type": "object"}, role=None,
                 body=Nothing),
        Endpoint("GET", f"{API}/openapi.json", "This description", {"type": "object"}, role=None),
    )  # fmt: skip
