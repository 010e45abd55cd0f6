"""JSON of the dashboard beyond the shapes that `--json` has: a cluster at a glance, a job by vertex. Pure.

A job of 10,000 subtasks is a page of some KB: subtasks are counted by vertex here, and listed a page at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lockgate_common.backlog import Backlog, forward_edges, vertex_backlogs
from lockgate_proto.messages import ClusterStatus, JobStatus, LeaderRecord, OperatorStatus, ReadHistory, SubtaskSnapshot

from lockgate.json_shapes import (
    Json,
    backlog_json,
    checkpoint_json,
    job_json,
    leader_json,
    snapshot_json,
    status_json,
    subtask_json,
    summary_json,
    totals_json,
)
from lockgate.loads import VertexLoad, vertex_loads
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
        **totals_json(status),
        "subtasks": status.subtask_count or len(status.subtasks),  # an older leader sends them all the same
        "checkpoints_completed": status.checkpoints_completed,
        "checkpoints_aborted": status.checkpoints_aborted,
        "last_checkpoint": checkpoint_json(status.last_checkpoint),
    }


def live_json(status: JobStatus) -> Json:
    """A job as its page shows it: everything of `lockgate job KEY --json`, its subtasks by vertex."""
    shown = job_json(replace(status, subtasks=()))
    del shown["subtasks"]
    return {**shown, **totals_json(status), "vertices": _vertices(status)}


def graph_json(status: JobStatus) -> Json:
    """The graph of a job, and where its vertices are drawn. Of an ended job no edges are known."""
    ids = [vertex["id"] for vertex in _vertices(status)]
    drawn = layout(ids, [(edge.source, edge.target) for edge in forward_edges(status)])
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


def reads_json(status: JobStatus) -> Json:
    """What its sources had read at the same place of the other list; empty for a job that does not run."""
    history = status.reads or ReadHistory()
    return {"unix_ms": list(history.unix_ms), "records_read": list(history.records)}


def subtasks_json(status: JobStatus, vertex: str, offset: int) -> Json:
    """A page of the subtasks, of all vertices for "". total: on all pages."""
    found = [subtask for subtask in status.subtasks if vertex in ("", subtask.vertex_id)]
    page = [subtask_json(subtask) for subtask in found[offset : offset + PAGE]]
    return {"total": len(found), "offset": offset, "subtasks": page}


def snapshots_json(checkpoint_id: int, parts: Sequence[SubtaskSnapshot], vertex: str, offset: int) -> Json:
    """A page of the parts of a checkpoint, the slowest first, of all vertices for "". total: on all pages."""
    found = sorted((part for part in parts if vertex in ("", part.vertex_id)), key=lambda part: -part.duration_ms)
    page = [snapshot_json(part) for part in found[offset : offset + PAGE]]
    return {"id": checkpoint_id, "total": len(found), "offset": offset, "subtasks": page}


def _vertices(status: JobStatus) -> list[Json]:
    operators: dict[str, list[OperatorStatus]] = {}
    for operator in status.operators:
        operators.setdefault(operator.vertex_id, []).append(operator)
    states: dict[str, Json] = {}
    for (vertex, state), count in Counter((subtask.vertex_id, subtask.state) for subtask in status.subtasks).items():
        operators.setdefault(vertex, [])
        states.setdefault(vertex, {})[state] = count
    loads, backlogs = vertex_loads(status.subtasks), vertex_backlogs(status.subtasks)
    return [
        {
            "id": vertex,
            "operators": [operator.name or operator.operator_id for operator in chain],
            "parallelism": sum(states.get(vertex, {}).values()),
            "states": states.get(vertex, {}),
            "records_in": chain[0].records_in if chain else 0,
            "records_out": chain[-1].records_out if chain else 0,
            **_load_json(loads.get(vertex)),
            **backlog_json(backlogs.get(vertex, Backlog())),
        }
        for vertex, chain in operators.items()
    ]


def _load_json(load: VertexLoad | None) -> Json:
    """All None while no subtask has reported."""
    return {
        "busy": load and round(load.busy, 3),
        "backpressured": load and round(load.backpressured, 3),
        "idle": load and round(load.idle, 3),
        "busiest": load and load.busiest,
        "watermark_unix_ms": load and load.watermark_unix_ms,
        "lag_ms": load and load.lag_ms,
    }
