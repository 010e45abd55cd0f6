"""JSON of the dashboard beyond the shapes that `--json` has: a cluster at a glance, a job by vertex. Pure.

A job of 10,000 subtasks is a page of some KB: subtasks are counted by vertex here, and listed a page at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lockgate_proto.messages import ClusterStatus, JobStatus, LeaderRecord, OperatorStatus, Partitioning

from lockgate.shapes import Json, checkpoint_json, job_json, leader_json, status_json, summary_json
from lockgate_web.layout import HEIGHT, WIDTH, layout

PAGE = 100


def cluster_json(name: str, zookeeper: str, cluster: ClusterStatus, jobs: Sequence[JobStatus]) -> Json:
    """As `lockgate status --json`, and: who leads since when, dashboards, ZooKeeper."""
    found = status_json(cluster, jobs)
    for shown, coordinator in zip(found["coordinators"], cluster.coordinators, strict=True):
        shown["dashboard"] = coordinator.dashboard or None
    return {
        "name": name,
        "zookeeper": zookeeper,
        **found,
        "leader": _leader_json(cluster.leader) if cluster.leader is not None else None,
    }


def _leader_json(leader: LeaderRecord) -> Json:
    added = {"id": leader.coordinator_id, "granted_unix_us": leader.granted_unix_us}
    return {**leader_json(leader), **added, "dashboard": leader.dashboard or None}


def overview_json(status: JobStatus) -> Json:
    """A job in one line."""
    return {
        **summary_json(status),
        "records_read": sum(operator.records_out for operator in _sources(status)),
        "records_written": sum(operator.records_in for operator in _sinks(status)),
        "subtasks": len(status.subtasks),
        "checkpoints_completed": status.checkpoints_completed,
        "checkpoints_aborted": status.checkpoints_aborted,
        "last_checkpoint": checkpoint_json(status.last_checkpoint),
    }


def live_json(status: JobStatus) -> Json:
    """A job as its page shows it: everything of `lockgate job KEY --json`, its subtasks by vertex."""
    shown = {name: value for name, value in job_json(status).items() if name != "subtasks"}
    read, written = overview_json(status)["records_read"], overview_json(status)["records_written"]
    return {**shown, "records_read": read, "records_written": written, "vertices": _vertices(status)}


def graph_json(status: JobStatus) -> Json:
    """The graph of a job, and where its vertices are drawn. Of an ended job no edges are known."""
    ids = [vertex["id"] for vertex in _vertices(status)]
    drawn = layout(ids, [(edge.source, edge.target) for edge in status.edges])
    return {
        "width": drawn.width,
        "height": drawn.height,
        "vertex_width": WIDTH,
        "vertex_height": HEIGHT,
        "vertices": [{"id": name, "x": drawn.places[name][0], "y": drawn.places[name][1]} for name in ids],
        "edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "partitioning": edge.partitioning.name.lower(),
                "side_output": edge.side_output,
            }
            for edge in status.edges
        ],
    }


def subtasks_json(status: JobStatus, vertex: str, offset: int) -> Json:
    """A page of the subtasks, of all vertices for "". total: on all pages."""
    found = [subtask for subtask in job_json(status)["subtasks"] if vertex in ("", subtask["vertex"])]
    return {"total": len(found), "offset": offset, "subtasks": found[offset : offset + PAGE]}


def _vertices(status: JobStatus) -> list[Json]:
    operators: dict[str, list[OperatorStatus]] = {}
    for operator in status.operators:
        operators.setdefault(operator.vertex_id, []).append(operator)
    states: dict[str, Counter[str]] = {}
    for subtask in status.subtasks:
        operators.setdefault(subtask.vertex_id, [])
        states.setdefault(subtask.vertex_id, Counter())[subtask.state] += 1
    return [
        {
            "id": vertex,
            "operators": [operator.name or operator.operator_id for operator in chain],
            "parallelism": sum(states.get(vertex, Counter()).values()),
            "states": dict(states.get(vertex, {})),
            "records_in": chain[0].records_in if chain else 0,
            "records_out": chain[-1].records_out if chain else 0,
        }
        for vertex, chain in operators.items()
    ]


def _sources(status: JobStatus) -> list[OperatorStatus]:
    """The first operators of vertices into which no edge leads; of an ended job, the first one."""
    if not status.edges:
        return list(status.operators[:1])
    entered = {edge.target for edge in status.edges if edge.partitioning is not Partitioning.FEEDBACK}
    firsts = {operator.vertex_id: operator for operator in reversed(status.operators)}
    return [operator for vertex, operator in firsts.items() if vertex not in entered]


def _sinks(status: JobStatus) -> list[OperatorStatus]:
    """The last operators of vertices out of which no edge leads; of an ended job, the last one."""
    if not status.edges:
        return list(status.operators[-1:])
    left = {edge.source for edge in status.edges if edge.partitioning is not Partitioning.FEEDBACK}
    lasts = {operator.vertex_id: operator for operator in status.operators}
    return [operator for vertex, operator in lasts.items() if vertex not in left]
