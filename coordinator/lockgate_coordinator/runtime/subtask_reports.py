"""Reports of subtasks in the messages of their task manager, as events of the job. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import assert_never

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    CheckpointCommitted,
    DeclineCheckpoint,
    FirstRecord,
    ReportBatch,
    SubtaskReport,
)

from lockgate_coordinator.job import events as ev

Body = SubtaskReport | AcknowledgeCheckpoint | DeclineCheckpoint | CheckpointCommitted | FirstRecord


def reports_in(body: ReportBatch | Body) -> Iterator[tuple[AttemptId, tuple[ev.Report, ...]]]:
    """Its reports in order, those of one attempt together as far as they follow each other. Of no attempt: none."""
    each = (item.body for item in body.reports) if isinstance(body, ReportBatch) else (body,)
    bodies: list[Body] = [item for item in each if item is not None]
    for attempt, found in groupby(bodies, key=_attempt):
        if attempt is not None:
            yield attempt, tuple(map(_event, found))


def _attempt(body: Body) -> AttemptId | None:
    return body.subtask.attempt if body.subtask is not None else None


def _event(body: Body) -> ev.Report:
    match body:
        case AcknowledgeCheckpoint():
            return ev.Acknowledged(body)
        case CheckpointCommitted():
            return ev.Committed(body)
        case SubtaskReport():
            return ev.Reported(body)
        case DeclineCheckpoint():
            return ev.Declined(body)
        case FirstRecord():
            return ev.FirstRecordSeen(body)
        case _:
            assert_never(body)
