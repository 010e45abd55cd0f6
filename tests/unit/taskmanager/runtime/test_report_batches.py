"""Reports of subtasks wait for each other, in a large job only, and never for long."""

from __future__ import annotations

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    BatchedReport,
    DeclineCheckpoint,
    ReportBatch,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
)
from lockgate_taskmanager.runtime.report_batches import (
    LONGEST_WAIT_MS,
    MAX_BATCH_BYTES,
    SUBTASKS_A_MS,
    Company,
    ReportBatches,
)

FIVE = Company(5, 10)


def subtask(index: int) -> SubtaskId:
    return SubtaskId(AttemptId("job", "run", 1), "count", index)


def ack(index: int) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint(subtask(index), 3)


def test_reports_are_taken_together_when_each_subtask_here_has_made_one() -> None:
    batches = ReportBatches()
    assert [batches.add(ack(index), 50, FIVE, 1_000) for index in range(5)] == [False] * 4 + [True]
    assert batches.take() == ReportBatch(tuple(BatchedReport(ack(index)) for index in range(5)))
    assert (len(batches), batches.next_due_ms()) == (0, None)


def test_the_first_report_does_not_wait_longer_than_it_may() -> None:
    batches = ReportBatches()
    assert not batches.add(ack(0), 50, FIVE, 1_000)
    assert not batches.add(ack(1), 50, FIVE, 1_009)
    assert batches.next_due_ms() == 1_010
    assert batches.add(ack(2), 50, FIVE, 1_010)


def test_the_next_batch_waits_for_itself() -> None:
    batches = ReportBatches()
    batches.add(ack(0), 50, FIVE, 1_000)
    batches.take()
    assert not batches.add(ack(1), 50, FIVE, 1_020)
    assert batches.next_due_ms() == 1_030


def test_one_report_is_no_batch() -> None:
    batches = ReportBatches()
    batches.add(ack(0), 50, FIVE, 1_000)
    assert batches.take() == ack(0)


def test_a_failure_is_sent_at_once_behind_what_waits() -> None:
    failure = SubtaskReport(subtask(1), SubtaskPhase.SUBTASK_FAILED)
    for urgent in (failure, DeclineCheckpoint(subtask(1), 3)):
        batches = ReportBatches()
        batches.add(ack(0), 50, FIVE, 1_000)
        assert batches.add(urgent, 50, FIVE, 1_000)
        assert batches.take() == ReportBatch((BatchedReport(ack(0)), BatchedReport(urgent)))


def test_a_batch_has_a_bounded_size() -> None:
    batches = ReportBatches()
    assert not batches.add(ack(0), MAX_BATCH_BYTES - 1, FIVE, 1_000)
    assert batches.add(ack(1), 1, FIVE, 1_000)


def test_a_small_job_waits_for_nothing() -> None:
    assert Company.of(10, SUBTASKS_A_MS - 1).wait_ms == 0
    assert Company.of(1, 100_000).wait_ms == 0
    assert Company.of(10, 2 * SUBTASKS_A_MS).wait_ms == 2
    assert Company.of(10, 1_000_000).wait_ms == LONGEST_WAIT_MS
