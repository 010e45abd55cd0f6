"""Messages that are too large for a control stream. Pure.

gRPC would end the stream, and every later one on which the message is sent again, so that nothing would reach the task
manager any more, whatever job it belongs to. Therefore the message is left out, and its sender gets a report.
"""

from __future__ import annotations

from typing import Any

from lockgate_proto.messages import (
    AssignSplits,
    AssignSplitsTogether,
    CopiesKept,
    DiscoverSplits,
    FailureCause,
    KeepCopies,
    QueryOutcome,
    SplitsDiscovered,
    StateAnswer,
    StateQuery,
    SubtaskPhase,
    SubtaskReport,
)
from lockgate_proto.rpc import MAX_MESSAGE_BYTES

Report = SplitsDiscovered | SubtaskReport | CopiesKept | StateAnswer


def problem_of(body: Any, size: int) -> str:
    """Why a message of `size` bytes cannot be sent, a sentence; "" when it can."""
    if size <= MAX_MESSAGE_BYTES:
        return ""
    name = type(body).__name__
    return f"the message {name} to its task manager has {size:,} bytes, and {MAX_MESSAGE_BYTES:,} fit into a message"


def report_instead(body: Any, problem: str) -> Report | None:
    """What the task manager would report if it had refused the message; None where its absence is noticed anyway."""
    cause = FailureCause.STATE_UNREADABLE  # the same again would be too large again, and the snapshots stay
    match body:
        case DiscoverSplits(attempt, vertex_id, round=number):
            return SplitsDiscovered(attempt, vertex_id, error=problem, cause=cause, round=number)
        case AssignSplits(subtask) | AssignSplitsTogether((AssignSplits(subtask), *_)):
            return SubtaskReport(subtask, SubtaskPhase.SUBTASK_FAILED, cause, problem)
        case KeepCopies(attempt, number):
            return CopiesKept(attempt, number, problem=problem)
        case StateQuery(request):
            return StateAnswer(request, QueryOutcome.NOT_ANSWERABLE, problem=problem)
    return None
