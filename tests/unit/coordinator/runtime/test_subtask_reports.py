"""Reports in the messages of task managers: together or alone, in order, each for its attempt."""

from __future__ import annotations

from lockgate_coordinator.job import events as ev
from lockgate_coordinator.runtime.subtask_reports import reports_in
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    BatchedReport,
    CheckpointCommitted,
    FirstRecord,
    ReportBatch,
    SubtaskId,
    SubtaskReport,
)

FIRST, SECOND = AttemptId("job", "run", 1), AttemptId("other", "run", 1)


def batch(*bodies: SubtaskReport | AcknowledgeCheckpoint | CheckpointCommitted | FirstRecord | None) -> ReportBatch:
    return ReportBatch(tuple(map(BatchedReport, bodies)))


def ack(attempt: AttemptId, index: int) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint(SubtaskId(attempt, "count", index), 3)


def test_a_report_alone_is_the_only_one() -> None:
    assert list(reports_in(ack(FIRST, 0))) == [(FIRST, (ev.Acknowledged(ack(FIRST, 0)),))]


def test_reports_of_a_batch_keep_their_order_and_their_attempts() -> None:
    committed = CheckpointCommitted(SubtaskId(FIRST, "count", 1), 2)
    found = list(reports_in(batch(ack(FIRST, 0), committed, ack(SECOND, 0), ack(FIRST, 2))))
    assert found == [
        (FIRST, (ev.Acknowledged(ack(FIRST, 0)), ev.Committed(committed))),
        (SECOND, (ev.Acknowledged(ack(SECOND, 0)),)),
        (FIRST, (ev.Acknowledged(ack(FIRST, 2)),)),
    ]


def test_what_names_no_attempt_or_is_of_a_newer_kind_counts_for_nothing() -> None:
    assert list(reports_in(batch(None, SubtaskReport(), FirstRecord(SubtaskId())))) == []
    assert list(reports_in(SubtaskReport())) == []
