"""The JSON shapes of a cluster and its jobs, which scripts rely on: of `--json` and of the web dashboard. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lockgate_common.backlog import Backlog, job_backlog
from lockgate_common.json_input import parse_json
from lockgate_proto.messages import (
    CheckpointOffsets,
    CheckpointOutcome,
    ClusterStatus,
    CompletedCheckpoint,
    FailurePlace,
    JobEvent,
    JobFailure,
    JobStatus,
    JobStory,
    LeaderRecord,
    QueryStateResponse,
    StandbyStatus,
    StorageTrouble,
    SubmitResponse,
    SubtaskSnapshot,
    SubtaskStatusView,
)

Json = dict[str, Any]


def leader_json(leader: LeaderRecord) -> Json:
    """`lockgate leader --json`."""
    return {"address": leader.address, "pid": leader.pid, "token": leader.token, "session": leader.session}


def checkpoint_json(checkpoint: CompletedCheckpoint | None) -> Json | None:
    """One completed checkpoint."""
    if checkpoint is None:
        return None
    return {
        "id": checkpoint.checkpoint_id,
        "kind": checkpoint.kind.name.lower(),
        "pointer": checkpoint.pointer,
        "state": state_kind(checkpoint),
        "size_bytes": checkpoint.size_bytes,
        "written_bytes": checkpoint.written_bytes,
        "diff_values": checkpoint.diff_values,
        "diff_saved_bytes": checkpoint.diff_saved_bytes,
        "triggered_unix_ms": checkpoint.triggered_unix_ms,
        "duration_ms": checkpoint.duration_ms,
        "longest_sync_ms": checkpoint.longest_sync_us / 1000,
        "longest_alignment_ms": checkpoint.longest_alignment_ms,
        "unaligned": checkpoint.unaligned,
        "channel_state_bytes": checkpoint.channel_state_bytes,
        "token": checkpoint.token,
    }


def outcome_json(outcome: CheckpointOutcome) -> Json:
    """One checkpoint of `lockgate checkpoints KEY --history --json`: that of `checkpoint_json`, and what became of it.

    reason, text: why it was aborted, else None and "". attempt, acknowledged, subtasks: None for one that an earlier
    leader completed.
    """
    is_aborted = bool(outcome.aborted)
    found: Json = checkpoint_json(outcome.checkpoint) or {}
    return {
        **found,
        "state": "" if is_aborted else found.get("state", ""),
        "outcome": "aborted" if is_aborted else "completed",
        "reason": abort_reason(outcome) if is_aborted else None,
        "text": outcome.text,
        "attempt": outcome.attempt or None,
        "acknowledged": outcome.acknowledged if outcome.attempt else None,
        "subtasks": outcome.subtasks or None,
        "retained": outcome.retained,
    }


def abort_reason(outcome: CheckpointOutcome) -> str:
    """`expired` and so on, as in the metrics; "" for one that is completed."""
    return outcome.aborted.name.removeprefix("ABORT_").lower() if outcome.aborted else ""


def offsets_json(offsets: CheckpointOffsets | None) -> list[Json]:
    """Where the sources were when they injected the barrier, one for each subtask of a source."""
    return [
        {
            "operator": source.operator_id,
            "subtask": source.subtask,
            "splits": [{"split": split.split, "offset": split.offset, "end": split.end} for split in source.splits],
            "read_splits": list(source.read_splits),
        }
        for source in (offsets.sources if offsets is not None else ())
    ]


def queried_json(answer: QueryStateResponse) -> Json:
    """What operators hold for some keys."""
    return {
        "checkpoint": answer.checkpoint_id,
        "values": [
            {
                "operator": value.operator_id,
                "key": parse_json(value.key),
                "found": value.found,
                "value": parse_json(value.value) if value.found else None,
            }
            for value in answer.values
        ],
    }


def snapshot_json(part: SubtaskSnapshot) -> Json:
    """What one subtask contributed to a checkpoint."""
    return {
        "vertex": part.vertex_id,
        "subtask": part.subtask,
        "task_manager": part.task_manager_id,
        "duration_ms": part.duration_ms,
        "size_bytes": part.size_bytes,
        "written_bytes": part.written_bytes,
        "sync_ms": part.sync_us / 1000,
        "upload_ms": part.async_ms,
        "alignment_ms": part.alignment_ms,
    }


def summary_json(status: JobStatus) -> Json:
    """One line of `lockgate jobs --json`."""
    return {
        "key": status.job_key,
        "name": status.name,
        "state": status.state.name,
        "attempt": status.attempt,
        "restarts": status.restarts,
        "submitted_unix_ms": status.submitted_unix_ms,
        "ended_unix_ms": status.ended_unix_ms or None,
        "message": status.message,
        "error": status.error,
    }


def submission_json(status: JobStatus, answer: SubmitResponse) -> Json:
    """`lockgate submit --json`. created: False where the job was submitted before."""
    return {
        **summary_json(status),
        "run_id": answer.run_id,
        "created": answer.created,
        "warnings": list(answer.warnings),
    }


def rescaled_json(status: JobStatus) -> Json:
    """`lockgate rescale --json`. parallelism: of each vertex, as far as it runs."""
    return {**summary_json(status), "parallelism": dict(Counter(subtask.vertex_id for subtask in status.subtasks))}


def job_json(status: JobStatus) -> Json:
    """`lockgate job KEY --json`."""
    return {
        **summary_json(status),
        "run_id": status.run_id,
        "token": status.token,
        "leader": status.leader_address,
        "straggler": status.straggler,
        "failure": failure_json(status.failure),
        "operators": [
            {
                "id": operator.operator_id,
                "name": operator.name,
                "vertex": operator.vertex_id,
                "records_in": operator.records_in,
                "records_out": operator.records_out,
                "records_late": operator.records_late,
                "records_malformed": operator.records_malformed,
                "records_ahead": operator.records_ahead,
                "records_failed": operator.records_failed,
                "records_lost": operator.records_lost,
            }
            for operator in status.operators
        ],
        "subtasks": [subtask_json(subtask) for subtask in status.subtasks],
        "checkpoints": {
            "mode": mode_name(status),
            "completed": status.checkpoints_completed,
            "aborted": status.checkpoints_aborted,
        },
        "last_checkpoint": checkpoint_json(status.last_checkpoint),
        "storage_trouble": _trouble_json(status.storage_trouble),
        "standby_copies": _standby_json(status.standby_copies),
    }


def totals_json(status: JobStatus) -> Json:
    """What its sources have read, and what its last operators got; None where that is not known any more. And what
    its sources have found and not read yet.
    """
    read = {"records_read": status.records_read, "records_written": status.records_written}
    return {**read, **backlog_json(job_backlog(status))}


def subtask_json(subtask: SubtaskStatusView) -> Json:
    """One of a job."""
    load = subtask.load
    return {
        "vertex": subtask.vertex_id,
        "subtask": subtask.subtask,
        "task_manager": subtask.task_manager_id,
        "state": subtask.state,
        "attempt": subtask.attempt or None,
        "busy": load and load.busy_permille / 1000,
        "backpressured": load and load.backpressured_permille / 1000,
        "idle": load and (1000 - load.busy_permille - load.backpressured_permille) / 1000,
        "watermark_unix_ms": load.watermark_unix_ms if load is not None and load.has_watermark else None,
        "lag_ms": load.lag_ms if load is not None and load.has_lag else None,
        **backlog_json(Backlog() if load is None else Backlog.of(load)),
    }


def backlog_json(backlog: Backlog) -> Json:
    """What sources have found and not read yet; each None where it is not known."""
    return {
        "backlog_records": backlog.records,
        "backlog_bytes": backlog.bytes,
        "backlog_splits": backlog.splits,
    }


def failure_json(failure: JobFailure | None) -> Json | None:
    """The failure of the job, or of its newest attempt; None without one."""
    if failure is None:
        return None
    place = failure.place or FailurePlace()
    return {
        "cause": failure.cause.name.lower(),
        "vertex": failure.vertex_id,
        "subtask": failure.subtask,
        "operator": place.operator_id,
        "column": place.column,
        "read": [{"split": range_.split, "start": range_.start, "end": range_.end} for range_ in place.ranges],
        "times": failure.times,
        "attempt": failure.attempt,
        "traceback": place.traceback,
    }


def _trouble_json(trouble: StorageTrouble | None) -> Json | None:
    return None if trouble is None else {"since_unix_ms": trouble.since_unix_ms, "reason": trouble.reason}


def _standby_json(standby: StandbyStatus | None) -> Json | None:
    """files_kept is None while a keeper is not done with its newest order."""
    if standby is None:
        return None
    keepers = [
        {
            "task_manager": keeper.task_manager_id,
            "stands_by_for": list(keeper.stands_by_for),
            "checkpoint": keeper.checkpoint_id,
            "files": keeper.files,
            "files_kept": keeper.files_kept,
            "size_bytes": keeper.size_bytes,
            "complete_checkpoint": keeper.complete_id or None,
            "problem": keeper.problem,
        }
        for keeper in standby.keepers
    ]
    return {"wanted": standby.wanted, "complete": standby.complete, "keepers": keepers}


def event_json(event: JobEvent) -> Json:
    """One event of `lockgate watch --json`."""
    return {
        "kind": event.kind.name,
        "unix_us": event.unix_us,
        "attempt": event.attempt,
        "checkpoint_id": event.checkpoint_id,
        "token": event.token,
        "text": event.text,
    }


def status_json(cluster: ClusterStatus, jobs: Sequence[JobStatus]) -> Json:
    """`lockgate status --json`. jobs: how many are in each state. leaders: the newest ones, the present one last."""
    return {
        "leader": leader_json(cluster.leader) if cluster.leader is not None else None,
        "coordinators": [
            {
                "id": coordinator.coordinator_id,
                "address": coordinator.address,
                "pid": coordinator.pid,
                "leader": coordinator.leader,
            }
            for coordinator in cluster.coordinators
        ],
        "task_managers": [
            {
                "id": task_manager.task_manager_id,
                "address": task_manager.address,
                "pid": task_manager.pid,
                "slots": task_manager.slots,
                "free_slots": task_manager.free_slots,
            }
            for task_manager in cluster.task_managers
        ],
        "jobs": dict(Counter(job.state.name for job in jobs)),
        "zookeeper_trouble": cluster.zookeeper_trouble or None,
        "leader_silent": cluster.leader_silent,
        "leaders": [
            {
                "token": leader.token,
                "id": leader.coordinator_id,
                "address": leader.address,
                "granted_unix_us": leader.granted_unix_us,
                "ended_unix_us": leader.ended_unix_us or None,
            }
            for leader in cluster.leaders
        ],
    }


def story_json(story: JobStory) -> Json:
    """`lockgate job KEY --story --json`."""
    return {
        "lines": [
            {
                "id": line.id,
                "cause_id": line.cause_id,
                "unix_us": line.unix_us,
                "process": line.process,
                "place": line.place,
                "attempt": line.attempt,
                "event": line.event,
                "change": line.change,
                "effects": list(line.effects),
            }
            for line in story.lines
        ],
        "remarks": list(story.remarks),
    }


def mode_name(status: JobStatus) -> str:
    """`exactly_once` and so on, as in the pipeline builder; empty for a job that has ended."""
    return status.checkpoint_mode.name.lower() if status.checkpoint_mode else ""


def state_kind(checkpoint: CompletedCheckpoint) -> str:
    """Whether a checkpoint is self-contained, or incremental, and whether it stores binary differences."""
    if not checkpoint.incremental:
        return "full"
    return "diff" if checkpoint.diff_values else "incremental"
