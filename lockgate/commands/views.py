"""Listings as plain text for people. Texts of jobs are made printable."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from lockgate_common.amounts import counted, size_text
from lockgate_common.backlog import Backlog
from lockgate_common.json_input import parse_json
from lockgate_common.printable import printable
from lockgate_proto.messages import (
    CheckpointKind,
    CheckpointMode,
    CheckpointOffsets,
    CheckpointOutcome,
    CompletedCheckpoint,
    JobEvent,
    JobState,
    JobStatus,
    QueryStateResponse,
    StandbyStatus,
    SubtaskLoad,
)

from lockgate.json_shapes import mode_name, state_kind

_FEWEST = 40
_SAVEPOINT = CheckpointKind.SAVEPOINT


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns padded to their widest cell; those numbered in `right` are right-aligned."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def jobs_text(jobs: Sequence[JobStatus], width: int = sys.maxsize) -> str:
    """`lockgate jobs`. width: of a line of the terminal, in characters; at least _FEWEST of each text are shown."""
    if not jobs:
        return "no jobs; submit one with `lockgate submit FILE.py`"
    texts = [job.error if job.state is JobState.FAILED else job.message for job in jobs]
    rows = [
        (job.job_key, job.state.name, str(job.attempt), str(job.restarts), clock(job.submitted_unix_ms)) for job in jobs
    ]
    header, right = ("KEY", "STATE", "ATTEMPT", "RESTARTS", "SUBMITTED"), (2, 3)
    most = max(_FEWEST, width - 2 - max(map(len, table(header, rows, right).splitlines())))
    cut = [_cut(text, most) for text in texts]
    found = table((*header, ""), [(*row, text) for row, text in zip(rows, cut, strict=True)], right)
    is_read = width < sys.maxsize  # by someone: elsewhere there is a line for each job
    return (
        found
        if cut == texts or not is_read
        else f"{found}\n\n`lockgate job KEY` shows the full text of a line that ends with ..."
    )


def _cut(text: str, most: int) -> str:
    """Its first line, and of that as many characters."""
    line = first_line(text)
    return line if line == text and len(line) <= most else f"{line[: most - 4].rstrip()} ..."


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
        lines.append(f"{'error' if status.state is JobState.FAILED else 'last failure'}: {status.error}")
    if traceback_of(status):
        lines.append(f"`lockgate job {status.job_key} --traceback` shows the traceback of the Python code")
    if status.straggler:
        lines.append(f"straggler: {status.straggler}")
    lines += [*_tables(status), *_remarks(status)]
    lines += ["", checkpoint_line(status)]
    return printable("\n".join(lines))


def _tables(status: JobStatus) -> Iterator[str]:
    """Of its operators and of its subtasks, an empty line before each."""
    if status.operators:
        rows = [
            (item.operator_id, item.name, item.vertex_id or "-", f"{item.records_in:,}", f"{item.records_out:,}")
            for item in status.operators
        ]
        yield ""
        yield table(("OPERATOR", "NAME", "VERTEX", "RECORDS IN", "RECORDS OUT"), rows, right=(3, 4))
    if status.subtasks:
        places = [
            (item.vertex_id, str(item.subtask), item.task_manager_id or "-", item.state, *_load_cells(item.load))
            for item in status.subtasks
        ]
        header = ("VERTEX", "SUBTASK", "TASK MANAGER", "STATE", "BUSY", "BACK-PRESSURED", "IDLE", "LAG", "BACKLOG")
        yield ""
        yield table(header, places, right=(1, 4, 5, 6, 7, 8))
    if status.standby_copies is not None:
        yield ""
        yield from _standby(status.standby_copies)


def _standby(standby: StandbyStatus) -> Iterator[str]:
    """Which copies of the newest snapshot there are."""
    rows = [
        (
            keeper.task_manager_id,
            ", ".join(keeper.stands_by_for) or "-",
            str(keeper.checkpoint_id),
            f"{'?' if keeper.files_kept is None else keeper.files_kept} of {keeper.files}",
            size_text(keeper.size_bytes),
            str(keeper.complete_id or "-"),
        )
        for keeper in standby.keepers
    ]
    yield f"standby copies: {standby.complete} of {standby.wanted} have every file of the newest checkpoint"
    yield table(("KEPT BY", "STANDS BY FOR", "CHECKPOINT", "FILES", "SIZE", "LAST COMPLETE"), rows, right=(2, 3, 4, 5))
    for keeper in standby.keepers:
        if keeper.problem:
            yield f"{keeper.task_manager_id} lacks copies: {keeper.problem}"


def _remarks(status: JobStatus) -> Iterator[str]:
    """About records that were not processed as all others, a line for each operator and kind."""
    for name, remark in (
        ("records_late", "records arrived too late for {}"),
        ("records_malformed", "lines were not valid records for {}"),
        (
            "records_ahead",
            "records were too far ahead of the clock for {}: processed, but they do not advance event time (max_ahead)",
        ),
        ("records_failed", "records failed in {} and were skipped, or went to its dead letters"),
        ("records_lost", "records of {} were lost in restarts (checkpoints at most once)"),
    ):
        for operator in status.operators:
            if count := getattr(operator, name):
                yield f"{count:,} {remark.format(operator.name)}"


def traceback_of(status: JobStatus) -> str:
    """Of the author's code, in the job's failure; "" without one."""
    place = status.failure.place if status.failure is not None else None
    return place.traceback if place is not None else ""


def traceback_text(status: JobStatus) -> str:
    """`lockgate job KEY --traceback`."""
    if found := traceback_of(status):
        return printable(found)
    if status.failure is None and not status.error:
        return f"job {status.job_key} has not failed"
    return printable(f"there is no traceback for this failure: {status.error or 'no reason given'}")


def _load_cells(load: SubtaskLoad | None) -> tuple[str, ...]:
    if load is None:
        return ("-",) * 5
    shares = (load.busy_permille, load.backpressured_permille, 1000 - load.busy_permille - load.backpressured_permille)
    busy, backpressured, idle = (percent(share / 1000) for share in shares)
    lag = f"{load.lag_ms / 1000:,.1f} s" if load.has_lag else "-"
    return busy, backpressured, idle, lag, str(Backlog.of(load))


def percent(share: float) -> str:
    """A share of 1."""
    return f"{share:.0%}"


def checkpoint_line(status: JobStatus) -> str:
    """The checkpoint statistics in one line."""
    counts = f"{status.checkpoints_completed} completed, {status.checkpoints_aborted} aborted under this leader"
    mode = mode_name(status)
    if mode and status.checkpoint_mode is not CheckpointMode.EXACTLY_ONCE:
        counts = f"{mode.replace('_', ' ')}, {counts}"
    last = status.last_checkpoint
    if last is None:
        return f"checkpoints: none yet ({counts})"
    in_flight = f", {size_text(last.channel_state_bytes)} of it in flight" if last.unaligned else ""
    return (
        f"last checkpoint {last.checkpoint_id}: {size_text(last.size_bytes)}{in_flight}, {last.duration_ms} ms "
        f"(sync {last.longest_sync_us / 1000:.1f} ms, alignment {last.longest_alignment_ms} ms); {counts}"
    )


def checkpoints_text(checkpoints: Sequence[CompletedCheckpoint]) -> str:
    """`lockgate checkpoints KEY`."""
    if not checkpoints:
        return "no completed checkpoint yet"
    rows = [
        (
            str(checkpoint.checkpoint_id),
            f"{checkpoint.kind.name.lower()}{', unaligned' if checkpoint.unaligned else ''}",
            state_kind(checkpoint),
            clock(checkpoint.triggered_unix_ms),
            f"{checkpoint.duration_ms} ms",
            size_text(checkpoint.size_bytes),
            size_text(checkpoint.written_bytes) if checkpoint.written_bytes else "-",
            checkpoint.pointer,
        )
        for checkpoint in checkpoints
    ]
    return table(("ID", "KIND", "STATE", "TRIGGERED", "TOOK", "SIZE", "WRITTEN", "POINTER"), rows, right=(0, 4, 5, 6))


def outcomes_text(outcomes: Sequence[CheckpointOutcome]) -> str:
    """`lockgate checkpoints KEY --history`."""
    if not outcomes:
        return "no checkpoint yet under this leader"
    rows = [_outcome_cells(outcome, outcome.checkpoint or CompletedCheckpoint()) for outcome in outcomes]
    header = ("ID", "KIND", "OUTCOME", "TRIGGERED", "TOOK", "SIZE", "WRITTEN", "ALIGNMENT", "SYNC", "ACKNOWLEDGED", "")
    return table(header, rows, right=(0, 4, 5, 6, 7, 8, 9))


def _outcome_cells(outcome: CheckpointOutcome, checkpoint: CompletedCheckpoint) -> tuple[str, ...]:
    kept = "retained" if outcome.retained else "disposed of" if checkpoint.kind is _SAVEPOINT else "subsumed"
    return (
        str(checkpoint.checkpoint_id),
        f"{checkpoint.kind.name.lower()}{', unaligned' if checkpoint.unaligned else ''}",
        "aborted" if outcome.aborted else kept,
        clock(checkpoint.triggered_unix_ms),
        f"{checkpoint.duration_ms} ms",
        size_text(checkpoint.size_bytes),
        size_text(checkpoint.written_bytes) if checkpoint.written_bytes else "-",
        f"{checkpoint.longest_alignment_ms} ms",
        f"{checkpoint.longest_sync_us / 1000:.1f} ms",
        f"{outcome.acknowledged} of {outcome.subtasks}" if outcome.subtasks else "-",
        first_line(outcome.text),
    )


def queried_text(answer: QueryStateResponse) -> str:
    """`lockgate query`: a line for each output of a key, and of windows for each window."""
    rows = []
    for value in answer.values:
        named = ", ".join(f"{name}={_cell(item)}" for name, item in parse_json(value.key).items())
        if not value.found:
            rows.append((named, "-"))
            continue
        held = parse_json(value.value)
        for item in held.get("windows", [held.get("states", held.get("values", held))]):
            rows.append((named, ", ".join(f"{name}={_cell(found)}" for name, found in item.items())))
    return f"as of checkpoint {answer.checkpoint_id}\n{table(('KEY', 'VALUE'), rows)}"


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def offsets_text(checkpoints: Sequence[CheckpointOffsets]) -> str:
    """`lockgate checkpoints KEY --offsets`: a line for each split."""
    rows = [
        (str(checkpoint.checkpoint_id), source.operator_id, str(source.subtask), *split)
        for checkpoint in checkpoints
        for source in checkpoint.sources
        for split in (
            *((each.split, str(each.offset), str(each.end) if each.end >= 0 else "-") for each in source.splits),
            *((f"splits read to their ends, in {file}", "", "") for file in source.read_splits),
        )
    ]
    if not rows:
        return "no completed checkpoint with offsets yet"
    return table(("ID", "SOURCE", "SUBTASK", "SPLIT", "OFFSET", "END"), rows, right=(0, 2, 4, 5))


def event_text(event: JobEvent) -> str:
    """One event in one line."""
    moment = datetime.datetime.fromtimestamp(event.unix_us / 1e6).strftime("%H:%M:%S.%f")[:-3]
    number = f" {event.checkpoint_id}" if event.checkpoint_id else ""
    text = f": {printable(event.text)}" if event.text else ""
    return f"{moment}  {event.kind.name.lower().replace('_', ' ')}{number}{text}"


def progress_text(status: JobStatus) -> str:
    """A running job in one line: input, output, last checkpoint."""
    parts = [status.state.name.lower().replace("_", " "), f"attempt {status.attempt}"]
    if status.operators:
        first = status.operators[0]
        parts.append(f"{first.records_out:,} records from {first.name}")
        parts.append(f"{status.operators[-1].records_in:,} into {status.operators[-1].name}")
    if status.last_checkpoint is not None:
        last = status.last_checkpoint
        parts.append(f"checkpoint {last.checkpoint_id} ({last.duration_ms} ms, {size_text(last.size_bytes)})")
    if status.restarts:
        parts.append(counted(status.restarts, "restart"))
    if status.message:
        parts.append(status.message)
    return printable(", ".join(parts))


def clock(unix_ms: int) -> str:
    """Local time; `-` for never."""
    return datetime.datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S") if unix_ms else "-"


def first_line(text: str) -> str:
    """The first line of a multi-line text."""
    return text.splitlines()[0] if text else ""
