"""JSON schemas of what the API answers. Tests compare them with real answers: none has a key that is not here. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_YES: Schema = {"type": "boolean"}


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _texts(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, _TEXT)


def _wholes(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, _WHOLE)


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _by_name(item: Schema) -> Schema:
    return {"type": "object", "additionalProperties": item}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def named(name: str) -> Schema:
    """A reference to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


_SUMMARY = {
    **_texts("key", "name", "state", "message", "error"),
    **_wholes("attempt", "restarts", "submitted_unix_ms"),
    "ended_unix_ms": _or_null(_WHOLE),
}
_COUNTS = _wholes(
    "records_in",
    "records_out",
    "records_late",
    "records_malformed",
    "records_ahead",
    "records_failed",
    "records_lost",
)
_JOB = {
    **_SUMMARY,
    **_texts("run_id", "leader", "straggler"),
    "token": _WHOLE,
    "failure": _or_null(named("Failure")),
    "operators": _list(_object({**_texts("id", "name", "vertex"), **_COUNTS})),
    "checkpoints": _object({"mode": _TEXT, **_wholes("completed", "aborted")}),
    "last_checkpoint": _or_null(named("Checkpoint")),
    "storage_trouble": _or_null(_object({"since_unix_ms": _WHOLE, "reason": _TEXT})),
    "standby_copies": _or_null(_object({**_wholes("wanted", "complete"), "keepers": _list(named("CopyKeeper"))})),
}
_BACKLOG = dict.fromkeys(("backlog_records", "backlog_bytes", "backlog_splits"), _or_null({**_WHOLE, "minimum": 0}))
_TOTALS = {**dict.fromkeys(("records_read", "records_written"), _or_null(_WHOLE)), **_BACKLOG}  # null: not known
_LOAD = {
    **dict.fromkeys(("busy", "backpressured", "idle"), _or_null({"type": "number", "minimum": 0, "maximum": 1})),
    **dict.fromkeys(("watermark_unix_ms", "lag_ms"), _or_null(_WHOLE)),
    **_BACKLOG,
}  # shares of the last seconds; null: not known, no event time
_LEADER = {
    **_texts("address", "session", "id"),
    **_wholes("pid", "token", "granted_unix_us"),
    "dashboard": _or_null(_TEXT),
}
_CHECKPOINT = {
    **_texts("kind", "pointer", "state"),
    **_wholes("id", "size_bytes", "written_bytes", "diff_values", "diff_saved_bytes", "triggered_unix_ms"),
    **_wholes("duration_ms", "longest_alignment_ms", "channel_state_bytes", "token"),
    "longest_sync_ms": _NUMBER,
    "unaligned": _YES,
}

SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": {**_TEXT, "description": "one sentence"}}),
    "Checkpoint": _object(_CHECKPOINT),
    "CheckpointOutcome": _object(
        {
            **_CHECKPOINT,
            "outcome": {"enum": ["completed", "aborted"]},
            "reason": _or_null(_TEXT),
            "text": {**_TEXT, "description": "why it was aborted, in words"},
            **dict.fromkeys(("attempt", "acknowledged", "subtasks"), _or_null(_WHOLE)),
            "retained": _YES,
        }
    ),
    "CheckpointParts": _object(
        {
            **_wholes("id", "total", "offset"),
            "subtasks": _list(
                _object(
                    {
                        **_texts("vertex", "task_manager"),
                        **_wholes("subtask", "duration_ms", "size_bytes", "written_bytes", "upload_ms", "alignment_ms"),
                        "sync_ms": _NUMBER,
                    }
                )
            ),
        }
    ),
    "Failure": _object(
        {
            **_texts("cause", "vertex", "operator", "column", "traceback"),
            **_wholes("subtask", "times", "attempt"),
            "read": _list(_object({"split": _TEXT, **_wholes("start", "end")})),
        }
    ),
    "CopyKeeper": _object(
        {
            **_texts("task_manager", "problem"),
            **_wholes("checkpoint", "files", "size_bytes"),
            "stands_by_for": _list(_TEXT),
            **dict.fromkeys(("files_kept", "complete_checkpoint"), _or_null(_WHOLE)),
        }
    ),
    "JobSummary": _object(_SUMMARY),
    "Subtask": _object(
        {**_texts("vertex", "task_manager", "state"), "subtask": _WHOLE, "attempt": _or_null(_WHOLE), **_LOAD}
    ),
    "Job": _object({**_JOB, "subtasks": _list(named("Subtask"))}),
    "JobByVertex": _object(
        {
            **_JOB,
            **_TOTALS,
            "vertices": _list(
                _object(
                    {
                        "id": _TEXT,
                        "operators": _list(_TEXT),
                        "states": _by_name(_WHOLE),
                        **_wholes("parallelism", "records_in", "records_out"),
                        **_LOAD,
                        "busiest": _LOAD["busy"],
                    }
                )
            ),
        }
    ),
    "JobOverview": _object(
        {
            **_SUMMARY,
            **_TOTALS,
            **_wholes("subtasks", "checkpoints_completed", "checkpoints_aborted"),
            "last_checkpoint": _or_null(named("Checkpoint")),
        }
    ),
    "Reads": _object(dict.fromkeys(("unix_ms", "records_read"), _list(_WHOLE))),
    "Subtasks": _object({**_wholes("total", "offset"), "subtasks": _list(named("Subtask"))}),
    "Graph": _object(
        {
            **_wholes("width", "height", "vertex_width", "vertex_height"),
            "vertices": _list(_object({"id": _TEXT, **_wholes("x", "y")})),
            "edges": _list(_object(_texts("source", "target", "partitioning", "side_output"))),
        }
    ),
    "Cluster": _object(
        {
            **_texts("name", "zookeeper"),
            "leader": _or_null(_object(_LEADER)),
            "coordinators": _list(
                _object({**_texts("id", "address"), "pid": _WHOLE, "leader": _YES, "dashboard": _or_null(_TEXT)})
            ),
            "task_managers": _list(_object({**_texts("id", "address"), **_wholes("pid", "slots", "free_slots")})),
            "jobs": _by_name(_WHOLE),
            "zookeeper_trouble": _or_null(_TEXT),
            "leader_silent": _YES,
            "leaders": _list(
                _object(
                    {
                        **_texts("id", "address"),
                        **_wholes("token", "granted_unix_us"),
                        "ended_unix_us": _or_null(_WHOLE),
                    }
                )
            ),
        }
    ),
    "Overview": _object({"cluster": named("Cluster"), "jobs": _list(named("JobOverview"))}),
    "Event": _object({"kind": _TEXT, "text": _TEXT, **_wholes("unix_us", "attempt", "checkpoint_id", "token")}),
    "Story": _object(
        {
            "lines": _list(
                _object(
                    {
                        **_texts("id", "cause_id", "process", "place", "event", "change"),
                        **_wholes("unix_us", "attempt"),
                        "effects": _list(_TEXT),
                    }
                )
            ),
            "remarks": _list(_TEXT),
        }
    ),
    "State": _object(_texts("key", "state")),
    "Rescaled": _object({"key": _TEXT, "parallelism": _by_name(_WHOLE), "after_attempt": _WHOLE}),
    "Disposed": _object({"key": _TEXT, "disposed": _WHOLE}),
    "Session": _object(
        {
            "name": _TEXT,
            "roles": _list(_TEXT),
            "owner": _YES,
            "pass": _TEXT,
            "dashboards": _list(_TEXT),
            "cluster": _TEXT,
        }
    ),
}
