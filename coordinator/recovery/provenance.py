"""Who may say what of an attempt: reports count only from where their subtask is placed.

A task manager that is confused, or was taken over, may name any attempt. What it says of subtasks that run elsewhere
must end no job, force no restart and complete no checkpoint.
"""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.messages import AcknowledgeCheckpoint, AttemptId, SubtaskId

from coordinator.graph.execution_graph import ExecutionGraph
from coordinator.recovery.events import (
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


def believed(report: Report, task_manager_id: str, execution: ExecutionGraph) -> Report | None:
    """What of the report counts when this task manager has said it; None when nothing does.

    execution: of the attempt that runs now. What belongs to another attempt counts for nothing either.
    """
    match report:
        case Reported(said) | Declined(said) | Committed(said) | FirstRecordSeen(said):
            return report if execution.runs_on(said.subtask, task_manager_id) else None
        case Acknowledged(said):
            return report if execution.runs_on(said.subtask, task_manager_id) and _is_its_own(said) else None
        case SplitsFound(found):
            lister = SubtaskId(attempt=found.attempt, vertex_id=found.vertex_id, subtask=0)
            return report if execution.runs_on(lister, task_manager_id) else None
        case Gone(gone=gone):
            return report if gone.attempt == execution.attempt and execution.uses(task_manager_id) else None
        case CountersReported(counters):
            own = tuple(one for one in counters if execution.runs_on(one.subtask, task_manager_id))
            return replace(report, counters=own) if own else None


def attempt_of(report: Report) -> AttemptId | None:
    """The attempt that a report names; of counters, which come for one attempt at a time, that of the first."""
    match report:
        case SplitsFound(found):
            return found.attempt
        case Gone(gone=gone):
            return gone.attempt
        case CountersReported(counters):
            subtask = counters[0].subtask if counters else None
        case Reported(said) | Declined(said) | Committed(said) | FirstRecordSeen(said) | Acknowledged(said):
            subtask = said.subtask
    return subtask.attempt if subtask is not None else None


def _is_its_own(ack: AcknowledgeCheckpoint) -> bool:
    """The state in an acknowledgement is that of the subtask that acknowledges."""
    subtask, state = ack.subtask, ack.state
    if subtask is None or state is None:
        return subtask is not None
    return (state.vertex_id, state.subtask) == (subtask.vertex_id, subtask.subtask)
