"""The CheckpointCoordinator alone: time, failures, persisting, savepoints, suspension, the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.effects import (
    AnswerSavepoint,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    DiscardCheckpoint,
    DiscardPending,
    PersistCheckpoint,
    PersistCheckpointId,
    TooManyFailures,
)
from lockgate_coordinator.checkpoint.events import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    CheckpointIdPersisted,
    CheckpointPersisted,
    CheckpointPersistFailed,
    Draining,
    InputExhausted,
    NoFurtherAttempt,
    Resumed,
    SavepointRequested,
    Suspended,
    Tick,
)
from lockgate_coordinator.checkpoint.failures import FailureReason
from lockgate_coordinator.checkpoint.final import Purpose
from lockgate_coordinator.checkpoint.queue import MAX_QUEUED
from lockgate_proto.messages import (
    CheckpointKind,
    CheckpointMode,
    CompletedCheckpoint,
    OperatorState,
    StateHandle,
    StateKind,
    SubtaskState,
)

from tests.unit.coordinator.jobs import SUBTASKS, ack, attempt
from tests.unit.coordinator.testing_checkpoints import TestingCheckpoints

# time


def test_one_checkpoint_in_flight() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.trigger()
    assert not checkpoints.give(Tick(), 5_000)


def test_the_rate_is_fixed_and_does_not_drift_with_duration() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.now += 300
    checkpoints.acknowledge(number)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    assert checkpoints.machine.next_wake_ms() == 2_000


def test_a_slow_checkpoint_is_followed_at_once_and_missed_ones_are_skipped() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.now += 3_400
    checkpoints.acknowledge(number)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    assert checkpoints.of(PersistCheckpointId)
    checkpoints.give(CheckpointIdPersisted(2))
    checkpoints.acknowledge(2)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    assert checkpoints.machine.next_wake_ms() == 5_000


def test_min_pause_holds_the_next_one_back() -> None:
    checkpoints = TestingCheckpoints(min_pause_ms=1_500)
    checkpoints.complete()
    assert checkpoints.machine.next_wake_ms() == 2_500
    assert not checkpoints.give(Tick(), 1_499)
    assert checkpoints.give(Tick(), 1)


def test_timeout_aborts_and_names_the_missing_subtasks() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=1)
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=("count", 1))
    assert checkpoints.machine.next_wake_ms() == checkpoints.now + 10_000
    assert not checkpoints.give(Tick(), 9_999)
    checkpoints.give(Tick(), 1)
    (aborted,) = checkpoints.of(CheckpointAborted)
    assert aborted.reason is FailureReason.EXPIRED
    assert aborted.text == "not acknowledged in time by count-1"


def test_no_timeout_while_the_outcome_of_the_write_is_unknown() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.acknowledge(checkpoints.trigger())
    assert not checkpoints.give(Tick(), 100_000)
    assert checkpoints.machine.next_wake_ms() is None


def test_nothing_starts_without_a_running_attempt() -> None:
    checkpoints = TestingCheckpoints(running=False)
    assert not checkpoints.give(Tick(), 100_000)
    assert checkpoints.machine.next_wake_ms() is None


# failures


def test_failures_beyond_the_tolerable_ask_for_a_restart() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=2)
    for _ in range(2):
        checkpoints.decline(checkpoints.trigger())
        assert not checkpoints.of(TooManyFailures)
    checkpoints.decline(checkpoints.trigger())
    assert checkpoints.of(TooManyFailures)
    assert not checkpoints.give(Tick(), 5_000)


def test_a_completed_checkpoint_starts_the_count_over() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=1)
    for _ in range(5):
        checkpoints.decline(checkpoints.trigger())
        assert not checkpoints.of(TooManyFailures)
        checkpoints.complete()


def test_a_write_that_failed_counts() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.acknowledge(checkpoints.trigger())
    checkpoints.give(CheckpointPersistFailed(1, "disk full"))
    assert checkpoints.of(TooManyFailures)


def test_a_zookeeper_that_is_away_is_not_the_jobs_failure() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.acknowledge(checkpoints.trigger())
    checkpoints.give(CheckpointPersistFailed(1, "not connected", FailureReason.STORE_AWAY))
    assert checkpoints.of(CheckpointAborted)
    assert not checkpoints.of(TooManyFailures)


def test_the_end_of_the_attempt_is_not_a_failed_checkpoint() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.trigger()
    checkpoints.give(AttemptEnded("tm lost"))
    assert not checkpoints.of(TooManyFailures)
    assert checkpoints.of(DiscardPending)


# persisting and the end of the attempt


def test_a_checkpoint_being_written_survives_the_end_of_its_attempt() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.acknowledge(checkpoints.trigger())
    record = checkpoints.persist().record
    assert not checkpoints.give(AttemptEnded("tm lost"))
    assert checkpoints.machine.settling
    checkpoints.give(CheckpointPersisted(record))
    (completed,) = checkpoints.of(CheckpointCompleted)
    assert not completed.attempt_alive
    assert not checkpoints.machine.settling
    assert checkpoints.machine.completed.restore_point == completed.metadata


@pytest.mark.parametrize("repeat", [1, 2])
def test_a_repeated_outcome_or_one_of_another_id_is_ignored(repeat: int) -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.acknowledge(checkpoints.trigger())
    record = checkpoints.persist().record
    assert not checkpoints.give(CheckpointPersisted(replace(record, checkpoint_id=99)))
    assert not checkpoints.give(CheckpointPersistFailed(99, "x"))
    checkpoints.give(CheckpointPersisted(record))
    for _ in range(repeat):
        assert not checkpoints.give(CheckpointPersisted(record))
        assert not checkpoints.give(CheckpointPersistFailed(1, "x"))
    assert checkpoints.machine.completed_count == 1


def test_subsumed_checkpoints_are_discarded_after_the_new_one_is_announced() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.complete()
    checkpoints.complete()
    assert [type(effect) for effect in checkpoints.last] == [CheckpointCompleted, DiscardCheckpoint]


# savepoints


def test_savepoints_queue_behind_the_checkpoint_in_flight_and_go_before_the_next() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    for name in ("a", "b"):
        assert not checkpoints.give(SavepointRequested(name))
    checkpoints.now += 5_000
    answered = []
    kinds = []
    for _ in range(3):
        checkpoints.acknowledge(number)
        checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
        answered += [answer_savepoint.request_id for answer_savepoint in checkpoints.of(AnswerSavepoint)]
        number += 1
        checkpoints.give(CheckpointIdPersisted(number))
        kinds += [checkpoint_triggered.kind for checkpoint_triggered in checkpoints.of(CheckpointTriggered)]
    assert answered == ["a", "b"]
    assert kinds == [CheckpointKind.SAVEPOINT, CheckpointKind.SAVEPOINT, CheckpointKind.CHECKPOINT]


def test_savepoints_are_never_subsumed_and_do_not_push_checkpoints_out() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.complete()
    checkpoints.give(SavepointRequested("a"))
    checkpoints.give(CheckpointIdPersisted(2))
    checkpoints.acknowledge(2)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    assert not checkpoints.of(DiscardCheckpoint)
    for _ in range(3):
        checkpoints.complete()
    assert [(checkpoint.checkpoint_id, checkpoint.kind.name) for checkpoint in checkpoints.machine.completed.all()] == [
        (5, "CHECKPOINT"),
        (2, "SAVEPOINT"),
    ]


def test_a_savepoint_that_fails_is_answered_and_does_not_count_against_the_job() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("a"))
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.decline(1)
    (answer,) = checkpoints.of(AnswerSavepoint)
    assert "too large" in answer.error
    assert not checkpoints.of(TooManyFailures)


def test_a_savepoint_times_out_by_its_own_clock_even_while_it_queues() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.trigger()
    checkpoints.give(SavepointRequested("a", timeout_ms=500))
    assert checkpoints.machine.next_wake_ms() == checkpoints.now + 500
    checkpoints.give(Tick(), 500)
    assert [answer_savepoint.request_id for answer_savepoint in checkpoints.of(AnswerSavepoint)] == ["a"]


def test_a_savepoint_under_way_times_out_by_its_own_clock() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("a", timeout_ms=500))
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.give(Tick(), 500)
    assert checkpoints.of(AnswerSavepoint)
    assert checkpoints.of(CheckpointAborted)


def test_a_savepoint_that_was_begun_is_answered_when_its_attempt_ends() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("a"))
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.give(AttemptEnded("tm lost"))
    assert [answer.error for answer in checkpoints.of(AnswerSavepoint)] == ["The savepoint failed: tm lost."]


def test_savepoints_wait_for_the_next_attempt() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.trigger()
    checkpoints.give(SavepointRequested("before"))
    checkpoints.give(SavepointRequested("own", ends_for=Purpose.RESCALE))
    checkpoints.give(AttemptEnded("tm lost"))
    assert [(answer.request_id, answer.error) for answer in checkpoints.of(AnswerSavepoint)] == [
        ("own", "No savepoint: tm lost")
    ], "for what the JobMaster wanted it for, it asks again"
    assert not checkpoints.give(SavepointRequested("between"))
    assert not checkpoints.give(SavepointRequested("between")), "it is asked for again, and answered once"
    checkpoints.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    for name in ("before", "between"):
        (reserved,) = checkpoints.of(PersistCheckpointId)
        checkpoints.give(CheckpointIdPersisted(reserved.checkpoint_id))
        checkpoints.acknowledge(reserved.checkpoint_id, attempt_number=2)
        checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
        (answer,) = checkpoints.of(AnswerSavepoint)
        assert (answer.request_id, answer.savepoint is None) == (name, False)


def test_a_savepoint_waits_for_the_next_attempt_no_longer_than_its_timeout() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(AttemptEnded("tm lost"))
    assert not checkpoints.give(SavepointRequested("a", 5_000))
    assert checkpoints.machine.next_wake_ms() == checkpoints.now + 5_000
    assert not checkpoints.give(Tick(), 4_999)
    checkpoints.give(Tick(), 1)
    assert [answer.error for answer in checkpoints.of(AnswerSavepoint)] == ["The savepoint could not start in time."]
    checkpoints.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    assert not checkpoints.of(PersistCheckpointId)


def test_a_job_that_ends_answers_callers_waiting_for_the_next_attempt() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(AttemptEnded("tm lost"))
    checkpoints.give(SavepointRequested("a"))
    checkpoints.give(NoFurtherAttempt("the job is cancelled"))
    assert [answer.error for answer in checkpoints.of(AnswerSavepoint)] == ["No savepoint: the job is cancelled"]


def test_the_snapshot_of_an_order_needs_an_attempt() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(AttemptEnded("tm lost"))
    checkpoints.give(SavepointRequested("own", ends_for=Purpose.STOP))
    (answer,) = checkpoints.of(AnswerSavepoint)
    assert ("needs a running job" in answer.error, answer.busy) == (True, True)


def test_a_savepoint_being_written_when_the_attempt_ends_is_answered_with_its_outcome() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("a"))
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.acknowledge(1)
    record = checkpoints.persist().record
    assert not checkpoints.give(AttemptEnded("tm lost"))
    checkpoints.give(CheckpointPersisted(record))
    assert checkpoints.of(AnswerSavepoint)[0].savepoint is not None


def test_the_queue_of_savepoints_is_bounded() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.trigger()
    for number in range(MAX_QUEUED):
        assert not checkpoints.give(SavepointRequested(str(number)))
    checkpoints.give(SavepointRequested("one more"))
    (answer,) = checkpoints.of(AnswerSavepoint)
    assert (answer.request_id, answer.busy) == ("one more", True)


def test_so_many_savepoints_are_kept_and_one_that_is_disposed_of_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are in the job's result, which has to fit into one record."""
    monkeypatch.setattr("lockgate_coordinator.checkpoint.queue.MAX_SAVEPOINTS", 2)
    checkpoints = TestingCheckpoints()
    for name in ("first", "second"):
        checkpoints.give(SavepointRequested(name))
        completed_savepoint(checkpoints)
    checkpoints.give(SavepointRequested("third"))
    assert "savepoint dispose" in checkpoints.of(AnswerSavepoint)[0].error
    assert not checkpoints.of(PersistCheckpointId)
    assert checkpoints.give(SavepointRequested("first")) == [
        AnswerSavepoint("first", checkpoints.machine.completed.all()[1])
    ]
    checkpoints.machine.completed.dispose(1)
    checkpoints.give(SavepointRequested("third"))
    completed_savepoint(checkpoints)
    checkpoints.give(SavepointRequested("(order)", ends_for=Purpose.STOP))  # the job can still be ended
    assert checkpoints.of(PersistCheckpointId)


# suspended


def test_suspended_starts_nothing_and_resumes_at_once() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(Suspended())
    assert not checkpoints.give(Tick(), 10_000)
    assert checkpoints.machine.next_wake_ms() is None
    assert checkpoints.give(Resumed())


def test_suspended_holds_a_collected_checkpoint_back() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.give(Suspended())
    checkpoints.acknowledge(number)
    assert not checkpoints.last
    assert not checkpoints.machine.settling
    checkpoints.give(Resumed())
    assert checkpoints.persist().metadata.checkpoint_id == number


# savepoints that are asked for again


def completed_savepoint(checkpoints: TestingCheckpoints) -> CompletedCheckpoint:
    """The one that the newest batch begins is carried to its end; what stands in its record."""
    (reserve,) = checkpoints.of(PersistCheckpointId)
    checkpoints.give(CheckpointIdPersisted(reserve.checkpoint_id))
    checkpoints.acknowledge(reserve.checkpoint_id)
    record = checkpoints.persist().record
    checkpoints.give(CheckpointPersisted(record))
    return record


def test_a_repeated_savepoint_request_gets_the_same_one_during_and_after_it() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("mine"))
    begun = checkpoints.last
    assert not checkpoints.give(SavepointRequested("mine")), "it is under way"
    checkpoints.last = begun
    record = completed_savepoint(checkpoints)
    assert record.request_ids == ("mine",)
    assert [answer_savepoint.request_id for answer_savepoint in checkpoints.of(AnswerSavepoint)] == ["mine"]
    checkpoints.give(SavepointRequested("mine"))
    assert not checkpoints.of(PersistCheckpointId)
    assert [
        answer_savepoint.savepoint and answer_savepoint.savepoint.checkpoint_id
        for answer_savepoint in checkpoints.of(AnswerSavepoint)
    ] == [1]
    checkpoints.give(SavepointRequested("another"))
    assert checkpoints.of(PersistCheckpointId)


def test_one_that_waits_is_not_put_into_the_queue_again() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("first"))
    begun = checkpoints.last
    checkpoints.give(SavepointRequested("second"))
    checkpoints.give(SavepointRequested("second"))
    checkpoints.last = begun
    completed_savepoint(checkpoints)
    assert completed_savepoint(checkpoints).request_ids == ("second",)
    assert not checkpoints.of(PersistCheckpointId)


def test_a_failed_savepoint_is_taken_at_the_next_request() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("mine"))
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.decline(1)
    assert checkpoints.of(AnswerSavepoint)[0].error
    checkpoints.give(SavepointRequested("mine"))
    assert checkpoints.of(PersistCheckpointId)


def test_a_new_leader_knows_the_request_and_answers_before_the_job_runs() -> None:
    checkpoints = TestingCheckpoints(running=False)
    record = CompletedCheckpoint(3, kind=CheckpointKind.SAVEPOINT, request_ids=("mine",))
    checkpoints.machine.completed = CompletedCheckpoints(1, (record,), None)
    checkpoints.give(SavepointRequested("mine"))
    assert checkpoints.of(AnswerSavepoint) == [AnswerSavepoint("mine", record)]


def test_the_savepoint_of_a_stop_names_whom_else_it_answers_and_not_the_stop_itself() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("(order)", ends_for=Purpose.STOP))
    begun = checkpoints.last
    checkpoints.give(SavepointRequested("mine"))
    checkpoints.last = begun
    assert completed_savepoint(checkpoints).request_ids == ("mine",)
    assert {answer_savepoint.request_id for answer_savepoint in checkpoints.of(AnswerSavepoint)} == {"(order)", "mine"}


# terminal


def test_the_terminal_checkpoint_starts_at_once_and_nothing_after_it() -> None:
    checkpoints = TestingCheckpoints(min_pause_ms=5_000)
    checkpoints.complete()
    checkpoints.give(InputExhausted())
    checkpoints.give(CheckpointIdPersisted(2))
    assert checkpoints.of(CheckpointTriggered)[0].terminal
    checkpoints.acknowledge(2)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    assert checkpoints.machine.final.ends_job
    assert checkpoints.machine.final.checkpoint_id == 2
    assert not checkpoints.give(Tick(), 100_000)
    checkpoints.give(SavepointRequested("late"))
    assert checkpoints.of(AnswerSavepoint)[0].error


def test_no_checkpoint_begins_between_a_drain_and_the_terminal_one() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(Tick(), 1_000)
    (reserved,) = checkpoints.of(PersistCheckpointId)
    checkpoints.give(Draining())
    assert not checkpoints.give(CheckpointIdPersisted(reserved.checkpoint_id)), (
        "the sources have stopped before its trigger"
    )
    assert not checkpoints.give(Tick(), 5_000)
    assert checkpoints.machine.next_wake_ms() is None
    checkpoints.give(InputExhausted())
    assert checkpoints.of(PersistCheckpointId)
    checkpoints.give(AttemptEnded("it died"))
    checkpoints.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    assert checkpoints.machine.next_wake_ms() == checkpoints.now + 1_000


def test_a_terminal_checkpoint_that_fails_is_tried_again_after_the_interval() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=3)
    checkpoints.give(InputExhausted())
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.decline(1)
    assert not checkpoints.of(PersistCheckpointId)
    checkpoints.give(Tick(), 1_000)
    checkpoints.give(CheckpointIdPersisted(2))
    assert checkpoints.of(CheckpointTriggered)[0].terminal


def test_a_new_attempt_needs_its_own_terminal_checkpoint() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(InputExhausted())
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.acknowledge(1)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    checkpoints.give(AttemptEnded("tm lost"))
    checkpoints.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    assert not checkpoints.machine.final.ends_job


# unaligned


def test_an_unaligned_checkpoint_is_triggered_as_such_and_savepoints_and_the_last_one_are_not() -> None:
    checkpoints = TestingCheckpoints(mode=CheckpointMode.UNALIGNED)
    number = checkpoints.trigger()
    assert [checkpoint_triggered.unaligned for checkpoint_triggered in checkpoints.of(CheckpointTriggered)] == [True]
    checkpoints.acknowledge(number)
    assert checkpoints.persist().record.unaligned
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    checkpoints.give(SavepointRequested("s"))
    (reserve,) = checkpoints.of(PersistCheckpointId)
    checkpoints.give(CheckpointIdPersisted(reserve.checkpoint_id))
    assert [checkpoint_triggered.unaligned for checkpoint_triggered in checkpoints.of(CheckpointTriggered)] == [False]
    checkpoints.acknowledge(reserve.checkpoint_id)
    assert not checkpoints.persist().record.unaligned
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    checkpoints.give(InputExhausted())
    (last,) = checkpoints.of(PersistCheckpointId)
    checkpoints.give(CheckpointIdPersisted(last.checkpoint_id))
    assert [
        (checkpoint_triggered.terminal, checkpoint_triggered.unaligned)
        for checkpoint_triggered in checkpoints.of(CheckpointTriggered)
    ] == [(True, False)]


def test_an_aligned_checkpoint_that_takes_too_long_is_triggered_again_as_unaligned_once() -> None:
    checkpoints = TestingCheckpoints(mode=CheckpointMode.UNALIGNED, aligned_timeout_ms=300)
    number = checkpoints.trigger()
    assert [checkpoint_triggered.unaligned for checkpoint_triggered in checkpoints.of(CheckpointTriggered)] == [False]
    assert checkpoints.machine.next_wake_ms() == 1_300
    assert not checkpoints.give(Tick(), 299)
    checkpoints.give(Tick(), 1)
    assert [
        (checkpoint_triggered.checkpoint_id, checkpoint_triggered.unaligned)
        for checkpoint_triggered in checkpoints.of(CheckpointTriggered)
    ] == [(number, True)]
    assert not checkpoints.give(Tick(), 500)
    checkpoints.acknowledge(number)
    assert checkpoints.persist().record.unaligned


def test_an_aligned_checkpoint_that_is_quick_enough_stays_aligned() -> None:
    checkpoints = TestingCheckpoints(mode=CheckpointMode.UNALIGNED, aligned_timeout_ms=300)
    number = checkpoints.trigger()
    checkpoints.now += 200
    checkpoints.acknowledge(number)
    assert not checkpoints.persist().record.unaligned


# several at a time


def _three() -> tuple[TestingCheckpoints, int, int, int]:
    checkpoints = TestingCheckpoints(max_concurrent=3, timeout_ms=60_000)
    return checkpoints, checkpoints.trigger(), checkpoints.trigger(), checkpoints.trigger()


def test_as_many_checkpoints_are_in_flight_as_the_job_allows() -> None:
    checkpoints, *numbers = _three()
    assert numbers == [1, 2, 3]
    assert not checkpoints.give(Tick(), 5_000)


def test_a_newer_checkpoint_subsumes_earlier_ones_without_leftovers() -> None:
    checkpoints, first, second, third = _three()
    checkpoints.acknowledge(second)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    completed, aborted, discarded = checkpoints.last[:3]
    assert isinstance(completed, CheckpointCompleted)
    assert isinstance(aborted, CheckpointAborted)
    assert (aborted.checkpoint_id, aborted.text) == (first, f"checkpoint {second} subsumes it")
    assert discarded == DiscardPending(first)
    assert not checkpoints.of(TooManyFailures)
    checkpoints.acknowledge(first)
    assert not checkpoints.of(PersistCheckpoint)
    checkpoints.acknowledge(third)
    assert checkpoints.persist().record.checkpoint_id == third


def test_records_are_written_one_at_a_time_in_their_order() -> None:
    checkpoints, first, second, _ = _three()
    checkpoints.acknowledge(first)
    record = checkpoints.persist().record
    checkpoints.acknowledge(second)
    assert not checkpoints.of(PersistCheckpoint)
    assert checkpoints.machine.settling
    checkpoints.give(CheckpointPersisted(record))
    assert checkpoints.persist().record.checkpoint_id == second


def test_a_declined_checkpoint_leaves_the_others_alone() -> None:
    checkpoints = TestingCheckpoints(max_concurrent=2, tolerable_failures=1)
    first, second = checkpoints.trigger(), checkpoints.trigger()
    checkpoints.decline(first)
    assert [checkpoint_aborted.checkpoint_id for checkpoint_aborted in checkpoints.of(CheckpointAborted)] == [first]
    checkpoints.acknowledge(second)
    assert checkpoints.persist().record.checkpoint_id == second


def test_savepoints_and_the_last_checkpoint_have_the_time_for_themselves() -> None:
    checkpoints = TestingCheckpoints(max_concurrent=3)
    first = checkpoints.trigger()
    assert not checkpoints.give(SavepointRequested("s"))
    checkpoints.acknowledge(first)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    (reserve,) = checkpoints.of(PersistCheckpointId)
    checkpoints.give(CheckpointIdPersisted(reserve.checkpoint_id))
    assert [checkpoint_triggered.kind for checkpoint_triggered in checkpoints.of(CheckpointTriggered)] == [
        CheckpointKind.SAVEPOINT
    ]
    assert not checkpoints.give(Tick(), 3_000)


def test_a_savepoint_that_waits_for_the_one_in_flight_asks_for_no_wake_in_the_past() -> None:
    checkpoints = TestingCheckpoints(max_concurrent=2, timeout_ms=60_000)
    checkpoints.trigger()
    checkpoints.give(SavepointRequested("s", 30_000))
    assert not checkpoints.give(Tick(), 1_500)
    assert checkpoints.machine.next_wake_ms() == 1_000 + 30_000


def test_an_attempt_that_ends_takes_all_of_them_with_it() -> None:
    checkpoints, *numbers = _three()
    checkpoints.give(AttemptEnded("a task manager is lost"))
    assert [discard_pending.checkpoint_id for discard_pending in checkpoints.of(DiscardPending)] == numbers


def test_after_an_increment_that_builds_on_nothing_the_next_checkpoint_is_full() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    first = checkpoints.complete()
    second = checkpoints.trigger()
    left_out = StateHandle(size_bytes=4, checksum="c1", checkpoint_id=first, taken_over=True)
    state = SubtaskState("count", 0, (OperatorState("op", StateKind.KEYED_STATE, left_out),))
    checkpoints.acknowledge(second, without=("count", 0))
    checkpoints.give(Acknowledged(ack(second, "count", 0, state=state)))
    assert "in checkpoint 1, which is missing" in checkpoints.of(CheckpointAborted)[0].text
    assert not checkpoints.of(TooManyFailures), "the next one succeeds"
    checkpoints.give(Tick(), 1_000)
    checkpoints.give(CheckpointIdPersisted(third := second + 1))
    assert [checkpoint_triggered.completed_id for checkpoint_triggered in checkpoints.of(CheckpointTriggered)] == [0]
    checkpoints.acknowledge(third)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    checkpoints.give(Tick(), 1_000)
    checkpoints.give(CheckpointIdPersisted(third + 1))
    assert [checkpoint_triggered.completed_id for checkpoint_triggered in checkpoints.of(CheckpointTriggered)] == [
        third
    ], "and then increments again"
