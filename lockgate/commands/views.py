"""What listings show: the JSON shapes that scripts rely on, and plain text for people."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from lockgate_proto.messages import (
    CheckpointMode,
    CompletedCheckpoint,
    FailurePlace,
    JobEvent,
    JobFailure,
    JobStatus,
    LeaderRecord,
    StorageTrouble,
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
                "id": one.operator_id,
                "name": one.name,
                "vertex": one.vertex_id,
                "records_in": one.records_in,
                "records_out": one.records_out,
                "records_late": one.records_late,
                "records_malformed": one.records_malformed,
            }
            for one in status.operators
        ],
        "subtasks": [
            {"vertex": one.vertex_id, "subtask": one.subtask, "task_manager": one.task_manager_id, "state": one.state}
            for one in status.subtasks
        ],
        "checkpoints": {
            "mode": mode_name(status),
            "completed": status.checkpoints_completed,
            "aborted": status.checkpoints_aborted,
        },
        "last_checkpoint": checkpoint_json(status.last_checkpoint),
        "storage_trouble": _trouble_json(status.storage_trouble),
    }


def failure_json(failure: JobFailure | None) -> Json | None:
    """What the job, or its newest attempt, failed by; None for no failure."""
    if failure is None:
        return None
    place = failure.place or FailurePlace()
    return {
        "cause": failure.cause.name.lower(),
        "vertex": failure.vertex_id,
        "subtask": failure.subtask,
        "operator": place.operator_id,
        "column": place.column,
        "read": [{"split": one.split, "start": one.start, "end": one.end} for one in place.ranges],
        "times": failure.times,
        "attempt": failure.attempt,
    }


def _trouble_json(trouble: StorageTrouble | None) -> Json | None:
    return None if trouble is None else {"since_unix_ms": trouble.since_unix_ms, "reason": trouble.reason}


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


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns padded to their widest cell; those numbered in `right` are right-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def jobs_text(jobs: Sequence[JobStatus]) -> str:
    """`lockgate jobs`."""
    if not jobs:
        return "no jobs; submit one with `lockgate submit FILE.py`"
    rows = [
        (
            one.job_key,
            one.state.name,
            str(one.attempt),
            str(one.restarts),
            clock(one.submitted_unix_ms),
            first_line(one.error if one.state.name == "FAILED" else one.message),
        )
        for one in jobs
    ]
    return table(("KEY", "STATE", "ATTEMPT", "RESTARTS", "SUBMITTED", ""), rows, right=(2, 3))


def job_text(status: JobStatus) -> str:
    """`lockgate job KEY`."""
    lines = [f"{status.job_key}  {status.state.name}  attempt {status.attempt}  restarts {status.restarts}"]
    lines.append(
        f"submitted {clock(status.submitted_unix_ms)}, leader {status.leader_address or '-'} (token {status.token})"
    )
    if status.ended_unix_ms:
        lines.append(f"ended {clock(status.ended_unix_ms)}")
    if status.message:
        lines.append(status.message)
    if status.error:
        lines.append(f"{'error' if status.state.name == 'FAILED' else 'last failure'}: {status.error}")
    if status.straggler:
        lines.append(f"straggler: {status.straggler}")
    if status.operators:
        rows = [(one.operator_id, one.name, f"{one.records_in:,}", f"{one.records_out:,}") for one in status.operators]
        lines += ["", table(("OPERATOR", "NAME", "RECORDS IN", "RECORDS OUT"), rows, right=(2, 3))]
    if status.subtasks:
        rows = [(one.vertex_id, str(one.subtask), one.task_manager_id or "-", one.state) for one in status.subtasks]
        lines += ["", table(("VERTEX", "SUBTASK", "TASK MANAGER", "STATE"), rows, right=(1,))]
    lines += [
        f"{one.records_late:,} records came too late for {one.name}" for one in status.operators if one.records_late
    ]
    lines += [
        f"{one.records_malformed:,} lines were no records for {one.name}"
        for one in status.operators
        if one.records_malformed
    ]
    lines += ["", checkpoint_line(status)]
    return "\n".join(lines)


def mode_name(status: JobStatus) -> str:
    """`exactly_once` and so on: as the pipeline builder takes it; empty for a job that has ended."""
    return status.checkpoint_mode.name.lower() if status.checkpoint_mode else ""


def checkpoint_line(status: JobStatus) -> str:
    """How the checkpoints go, in one line."""
    counts = f"{status.checkpoints_completed} completed, {status.checkpoints_aborted} aborted under this leader"
    mode = mode_name(status)
    if mode and status.checkpoint_mode is not CheckpointMode.EXACTLY_ONCE:
        counts = f"{mode.replace('_', ' ')}, {counts}"
    last = status.last_checkpoint
    if last is None:
        return f"checkpoints: none yet ({counts})"
    in_flight = f", {size(last.channel_state_bytes)} of it in flight" if last.unaligned else ""
    return (
        f"last checkpoint {last.checkpoint_id}: {size(last.size_bytes)}{in_flight}, {last.duration_ms} ms "
        f"(sync {last.longest_sync_us / 1000:.1f} ms, alignment {last.longest_alignment_ms} ms); {counts}"
    )


def checkpoints_text(checkpoints: Sequence[CompletedCheckpoint]) -> str:
    """`lockgate checkpoints KEY`."""
    if not checkpoints:
        return "no completed checkpoint yet"
    rows = [
        (
            str(one.checkpoint_id),
            f"{one.kind.name.lower()}{', unaligned' if one.unaligned else ''}",
            state_kind(one),
            clock(one.triggered_unix_ms),
            f"{one.duration_ms} ms",
            size(one.size_bytes),
            size(one.written_bytes) if one.written_bytes else "-",
            one.pointer,
        )
        for one in checkpoints
    ]
    return table(("ID", "KIND", "STATE", "TRIGGERED", "TOOK", "SIZE", "WRITTEN", "POINTER"), rows, right=(0, 4, 5, 6))


def state_kind(checkpoint: CompletedCheckpoint) -> str:
    """Whether a checkpoint is whole by itself, or builds on what earlier ones have written, and with differences."""
    if not checkpoint.incremental:
        return "full"
    return "diff" if checkpoint.diff_values else "incremental"


def event_text(event: JobEvent) -> str:
    """One event in one line."""
    moment = datetime.datetime.fromtimestamp(event.unix_us / 1e6).strftime("%H:%M:%S.%f")[:-3]
    number = f" {event.checkpoint_id}" if event.checkpoint_id else ""
    return f"{moment}  {event.kind.name.lower().replace('_', ' ')}{number}{f': {event.text}' if event.text else ''}"


def progress_text(status: JobStatus) -> str:
    """A running job in one line: what goes in, what comes out, how safe it is."""
    parts = [status.state.name.lower().replace("_", " "), f"attempt {status.attempt}"]
    if status.operators:
        first = status.operators[0]
        parts.append(f"{first.records_out:,} records from {first.name}")
        parts.append(f"{status.operators[-1].records_in:,} into {status.operators[-1].name}")
    if status.last_checkpoint is not None:
        last = status.last_checkpoint
        parts.append(f"checkpoint {last.checkpoint_id} ({last.duration_ms} ms, {size(last.size_bytes)})")
    if status.restarts:
        parts.append(f"{status.restarts} restarts")
    if status.message:
        parts.append(status.message)
    return ", ".join(parts)


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def clock(unix_ms: int) -> str:
    """Local time; `-` for never."""
    return datetime.datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S") if unix_ms else "-"


def first_line(text: str) -> str:
    """The first line of a text of several."""
    return text.splitlines()[0] if text else ""
