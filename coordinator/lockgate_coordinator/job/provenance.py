"""Validates reports: only those of the right sender count, and their size is bounded.

A faulty or compromised task manager may name any attempt. Its reports on subtasks that run elsewhere must not end a
job, force a restart or complete a checkpoint.

A report is kept, compared with later failures on the deciding thread, sent to every watcher, and included in the job's
result. A result larger than a ZooKeeper record could never be written, and the job would not end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from lockgate_proto.messages import AcknowledgeCheckpoint, AttemptId, FailurePlace, SplitRange, SubtaskCounters

from lockgate_coordinator.graph.execution_graph import ExecutionGraph
from lockgate_coordinator.job.events import (
    Acknowledged,
    Committed,
    CountersReported,
    Declined,
    FirstRecordSeen,
    Gone,
    Report,
    Reported,
    SplitsFound,
)

MAX_TEXT = 10_000
"""Characters of an error or a reason; task managers cut theirs at a fifth of that."""
MAX_RANGES = 100
_MAX_NAME = 1_000


def bounded(report: Report) -> Report:
    """The report with its texts and lists truncated."""
    match report:
        case Reported(body) if len(body.error) > MAX_TEXT or body.place is not None:
            return Reported(replace(body, error=_cut(body.error), place=_place(body.place)))
        case Declined(body) if len(body.reason) > MAX_TEXT:
            return Declined(replace(body, reason=_cut(body.reason)))
        case SplitsFound(found) if len(found.error) > MAX_TEXT:
            return SplitsFound(replace(found, error=_cut(found.error)))
        case CountersReported(counters) if any(map(_is_long, counters)):
            return replace(report, counters=tuple(map(_counters, counters)))
    return report


def _is_long(counter: SubtaskCounters) -> bool:
    return max(len(counter.at_work), len(counter.irreproducible)) > _MAX_NAME


def _counters(counter: SubtaskCounters) -> SubtaskCounters:
    work, why = counter.at_work[:_MAX_NAME], counter.irreproducible[:_MAX_NAME]
    return replace(counter, at_work=work, irreproducible=why)


def _place(place: FailurePlace | None) -> FailurePlace | None:
    if place is None:
        return None
    ranges = tuple(
        SplitRange(range_.split[:_MAX_NAME], range_.start, range_.end) for range_ in place.ranges[:MAX_RANGES]
    )
    return FailurePlace(place.operator_id[:_MAX_NAME], place.column[:_MAX_NAME], ranges, place.traceback[-MAX_TEXT:])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ... ({len(text)} characters)"


def accepted(report: Report, task_manager_id: str, execution: ExecutionGraph) -> Report | None:
    """The part of the report that counts from this task manager; None when nothing does.

    execution: of the current attempt. Reports on other attempts do not count.
    """
    report = bounded(report)
    match report:
        case Reported(body) | Declined(body) | Committed(body) | FirstRecordSeen(body):
            return report if execution.runs_on(body.subtask, task_manager_id) else None
        case Acknowledged(body):
            return report if execution.runs_on(body.subtask, task_manager_id) and _is_its_own(body) else None
        case SplitsFound(found):
            return report if execution.lists(found.vertex_id, found.attempt, task_manager_id) else None
        case Gone(gone=gone):
            return report if execution.runs(gone.attempt, task_manager_id) else None
        case CountersReported(counters):
            own = tuple(counter for counter in counters if execution.runs_on(counter.subtask, task_manager_id))
            return replace(report, counters=own) if own else None
        case _:
            assert_never(report)


def attempt_of(report: Report) -> AttemptId | None:
    """The attempt that a report names. Counters come for one attempt at a time, so the first one decides."""
    match report:
        case SplitsFound(found):
            return found.attempt
        case Gone(gone=gone):
            return gone.attempt
        case CountersReported(counters):
            subtask = counters[0].subtask if counters else None
        case Reported(body) | Declined(body) | Committed(body) | FirstRecordSeen(body) | Acknowledged(body):
            subtask = body.subtask
        case _:
            assert_never(report)
    return subtask.attempt if subtask is not None else None


def _is_its_own(ack: AcknowledgeCheckpoint) -> bool:
    """True when the state in an acknowledgement belongs to the subtask that acknowledges."""
    subtask, state = ack.subtask, ack.state
    if subtask is None or state is None:
        return subtask is not None
    return (state.vertex_id, state.subtask) == (subtask.vertex_id, subtask.subtask)
