"""The CheckpointCoordinator alone: time, failures, persisting, savepoints, suspension, the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_proto.messages import (
    CheckpointKind,
    CheckpointMode,
    CompletedCheckpoint,
    OperatorState,
    StateHandle,
    StateKind,
    SubtaskState,
)

from coordinator.checkpoint.completed import CompletedCheckpoints
from coordinator.checkpoint.effects import (
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
from coordinator.checkpoint.events import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    CheckpointIdPersisted,
    CheckpointPersisted,
    CheckpointPersistFailed,
    Draining,
    InputExhausted,
    Resumed,
    SavepointRequested,
    Suspended,
    Tick,
)
from coordinator.checkpoint.failures import Fault
from coordinator.checkpoint.final import Purpose
from coordinator.checkpoint.queue import MAX_QUEUED
from tests.unit.coordinator.checkpoint_bench import Bench
from tests.unit.coordinator.jobs import SUBTASKS, ack, attempt

# time


def test_one_checkpoint_in_flight() -> None:
    bench = Bench()
    bench.trigger()
    assert not bench.give(Tick(), 5_000)


def test_the_rate_is_fixed_and_does_not_drift_with_duration() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.now += 300
    bench.acknowledge(number)
    bench.give(CheckpointPersisted(bench.persist().record))
    assert bench.machine.next_wake_ms() == 2_000


def test_a_slow_checkpoint_is_followed_at_once_and_missed_ones_are_not_made_up_for() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.now += 3_400
    bench.acknowledge(number)
    bench.give(CheckpointPersisted(bench.persist().record))
    assert bench.of(PersistCheckpointId)
    bench.give(CheckpointIdPersisted(2))
    bench.acknowledge(2)
    bench.give(CheckpointPersisted(bench.persist().record))
    assert bench.machine.next_wake_ms() == 5_000


def test_min_pause_holds_the_next_one_back() -> None:
    bench = Bench(min_pause_ms=1_500)
    bench.complete()
    assert bench.machine.next_wake_ms() == 2_500
    assert not bench.give(Tick(), 1_499)
    assert bench.give(Tick(), 1)


def test_timeout_aborts_and_names_who_is_missing() -> None:
    bench = Bench(tolerable_failures=1)
    number = bench.trigger()
    bench.acknowledge(number, without=("count", 1))
    assert bench.machine.next_wake_ms() == bench.now + 10_000
    assert not bench.give(Tick(), 9_999)
    bench.give(Tick(), 1)
    (aborted,) = bench.of(CheckpointAborted)
    assert aborted.reason == "not acknowledged in time by count-1"


def test_no_timeout_while_the_outcome_of_the_write_is_unknown() -> None:
    bench = Bench()
    bench.acknowledge(bench.trigger())
    assert not bench.give(Tick(), 100_000)
    assert bench.machine.next_wake_ms() is None


def test_nothing_starts_without_a_running_attempt() -> None:
    bench = Bench(running=False)
    assert not bench.give(Tick(), 100_000)
    assert bench.machine.next_wake_ms() is None


# failures


def test_failures_beyond_the_tolerable_ask_for_a_restart() -> None:
    bench = Bench(tolerable_failures=2)
    for _ in range(2):
        bench.decline(bench.trigger())
        assert not bench.of(TooManyFailures)
    bench.decline(bench.trigger())
    assert bench.of(TooManyFailures)
    assert not bench.give(Tick(), 5_000)


def test_a_completed_checkpoint_starts_the_count_over() -> None:
    bench = Bench(tolerable_failures=1)
    for _ in range(5):
        bench.decline(bench.trigger())
        assert not bench.of(TooManyFailures)
        bench.complete()


def test_a_write_that_failed_counts() -> None:
    bench = Bench()
    bench.acknowledge(bench.trigger())
    bench.give(CheckpointPersistFailed(1, "disk full"))
    assert bench.of(TooManyFailures)


def test_a_zookeeper_that_is_away_is_not_the_jobs_failure() -> None:
    bench = Bench()
    bench.acknowledge(bench.trigger())
    bench.give(CheckpointPersistFailed(1, "not connected", Fault.NONE))
    assert bench.of(CheckpointAborted)
    assert not bench.of(TooManyFailures)


def test_the_end_of_the_attempt_is_not_a_failed_checkpoint() -> None:
    bench = Bench()
    bench.trigger()
    bench.give(AttemptEnded("tm lost"))
    assert not bench.of(TooManyFailures)
    assert bench.of(DiscardPending)


# persisting and the end of the attempt


def test_a_checkpoint_being_written_survives_the_end_of_its_attempt() -> None:
    bench = Bench()
    bench.acknowledge(bench.trigger())
    record = bench.persist().record
    assert not bench.give(AttemptEnded("tm lost"))
    assert bench.machine.settling
    bench.give(CheckpointPersisted(record))
    (completed,) = bench.of(CheckpointCompleted)
    assert not completed.attempt_alive
    assert not bench.machine.settling
    assert bench.machine.completed.restore_point == completed.metadata


@pytest.mark.parametrize("repeat", [1, 2])
def test_an_outcome_that_comes_again_or_for_another_id_is_ignored(repeat: int) -> None:
    bench = Bench()
    bench.acknowledge(bench.trigger())
    record = bench.persist().record
    assert not bench.give(CheckpointPersisted(replace(record, checkpoint_id=99)))
    assert not bench.give(CheckpointPersistFailed(99, "x"))
    bench.give(CheckpointPersisted(record))
    for _ in range(repeat):
        assert not bench.give(CheckpointPersisted(record))
        assert not bench.give(CheckpointPersistFailed(1, "x"))
    assert bench.machine.completed_count == 1


def test_subsumed_checkpoints_are_discarded_after_the_new_one_is_announced() -> None:
    bench = Bench()
    bench.complete()
    bench.complete()
    assert [type(one) for one in bench.last] == [CheckpointCompleted, DiscardCheckpoint]


# savepoints


def test_savepoints_queue_behind_the_checkpoint_in_flight_and_go_before_the_next() -> None:
    bench = Bench()
    number = bench.trigger()
    for name in ("a", "b"):
        assert not bench.give(SavepointRequested(name))
    bench.now += 5_000
    answered = []
    kinds = []
    for _ in range(3):
        bench.acknowledge(number)
        bench.give(CheckpointPersisted(bench.persist().record))
        answered += [one.request_id for one in bench.of(AnswerSavepoint)]
        number += 1
        bench.give(CheckpointIdPersisted(number))
        kinds += [one.kind for one in bench.of(CheckpointTriggered)]
    assert answered == ["a", "b"]
    assert kinds == [CheckpointKind.SAVEPOINT, CheckpointKind.SAVEPOINT, CheckpointKind.CHECKPOINT]


def test_savepoints_are_never_subsumed_and_do_not_push_checkpoints_out() -> None:
    bench = Bench()
    bench.complete()
    bench.give(SavepointRequested("a"))
    bench.give(CheckpointIdPersisted(2))
    bench.acknowledge(2)
    bench.give(CheckpointPersisted(bench.persist().record))
    assert not bench.of(DiscardCheckpoint)
    for _ in range(3):
        bench.complete()
    assert [(one.checkpoint_id, one.kind.name) for one in bench.machine.completed.all()] == [
        (5, "CHECKPOINT"),
        (2, "SAVEPOINT"),
    ]


def test_a_savepoint_that_fails_is_answered_and_does_not_count_against_the_job() -> None:
    bench = Bench()
    bench.give(SavepointRequested("a"))
    bench.give(CheckpointIdPersisted(1))
    bench.decline(1)
    (answer,) = bench.of(AnswerSavepoint)
    assert "too large" in answer.error
    assert not bench.of(TooManyFailures)


def test_a_savepoint_times_out_by_its_own_clock_even_while_it_queues() -> None:
    bench = Bench()
    bench.trigger()
    bench.give(SavepointRequested("a", timeout_ms=500))
    assert bench.machine.next_wake_ms() == bench.now + 500
    bench.give(Tick(), 500)
    assert [one.request_id for one in bench.of(AnswerSavepoint)] == ["a"]


def test_a_savepoint_under_way_times_out_by_its_own_clock() -> None:
    bench = Bench()
    bench.give(SavepointRequested("a", timeout_ms=500))
    bench.give(CheckpointIdPersisted(1))
    bench.give(Tick(), 500)
    assert bench.of(AnswerSavepoint)
    assert bench.of(CheckpointAborted)


def test_savepoints_of_an_attempt_that_ends_are_answered() -> None:
    bench = Bench()
    bench.trigger()
    bench.give(SavepointRequested("a"))
    bench.give(AttemptEnded("tm lost"))
    assert [one.error for one in bench.of(AnswerSavepoint)] == ["No savepoint: tm lost"]


def test_a_savepoint_being_written_when_the_attempt_ends_is_answered_with_its_outcome() -> None:
    bench = Bench()
    bench.give(SavepointRequested("a"))
    bench.give(CheckpointIdPersisted(1))
    bench.acknowledge(1)
    record = bench.persist().record
    assert not bench.give(AttemptEnded("tm lost"))
    bench.give(CheckpointPersisted(record))
    assert bench.of(AnswerSavepoint)[0].savepoint is not None


def test_the_queue_of_savepoints_is_bounded() -> None:
    bench = Bench()
    bench.trigger()
    for number in range(MAX_QUEUED):
        assert not bench.give(SavepointRequested(str(number)))
    bench.give(SavepointRequested("one more"))
    assert [one.request_id for one in bench.of(AnswerSavepoint)] == ["one more"]


# suspended


def test_suspended_starts_nothing_and_resumes_at_once() -> None:
    bench = Bench()
    bench.give(Suspended())
    assert not bench.give(Tick(), 10_000)
    assert bench.machine.next_wake_ms() is None
    assert bench.give(Resumed())


def test_suspended_holds_a_collected_checkpoint_back() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.give(Suspended())
    bench.acknowledge(number)
    assert not bench.last
    assert not bench.machine.settling
    bench.give(Resumed())
    assert bench.persist().metadata.checkpoint_id == number


# savepoints that are asked for again


def completed_savepoint(bench: Bench) -> CompletedCheckpoint:
    """The one that the newest batch begins is carried to its end; what stands in its record."""
    (reserve,) = bench.of(PersistCheckpointId)
    bench.give(CheckpointIdPersisted(reserve.checkpoint_id))
    bench.acknowledge(reserve.checkpoint_id)
    record = bench.persist().record
    bench.give(CheckpointPersisted(record))
    return record


def test_a_savepoint_that_is_asked_for_again_is_the_same_while_it_is_taken_and_after() -> None:
    bench = Bench()
    bench.give(SavepointRequested("mine"))
    begun = bench.last
    assert not bench.give(SavepointRequested("mine")), "it is under way"
    bench.last = begun
    record = completed_savepoint(bench)
    assert record.request_ids == ("mine",)
    assert [one.request_id for one in bench.of(AnswerSavepoint)] == ["mine"]
    bench.give(SavepointRequested("mine"))
    assert not bench.of(PersistCheckpointId)
    assert [one.savepoint and one.savepoint.checkpoint_id for one in bench.of(AnswerSavepoint)] == [1]
    bench.give(SavepointRequested("another"))
    assert bench.of(PersistCheckpointId)


def test_one_that_waits_is_not_put_into_the_queue_again() -> None:
    bench = Bench()
    bench.give(SavepointRequested("first"))
    begun = bench.last
    bench.give(SavepointRequested("second"))
    bench.give(SavepointRequested("second"))
    bench.last = begun
    completed_savepoint(bench)
    assert completed_savepoint(bench).request_ids == ("second",)
    assert not bench.of(PersistCheckpointId)


def test_one_that_has_failed_is_taken_when_it_is_asked_for_again() -> None:
    bench = Bench()
    bench.give(SavepointRequested("mine"))
    bench.give(CheckpointIdPersisted(1))
    bench.decline(1)
    assert bench.of(AnswerSavepoint)[0].error
    bench.give(SavepointRequested("mine"))
    assert bench.of(PersistCheckpointId)


def test_a_new_leader_knows_what_was_asked_for_and_answers_before_the_job_runs() -> None:
    bench = Bench(running=False)
    record = CompletedCheckpoint(3, kind=CheckpointKind.SAVEPOINT, request_ids=("mine",))
    bench.machine.completed = CompletedCheckpoints(1, (record,), None)
    bench.give(SavepointRequested("mine"))
    assert bench.of(AnswerSavepoint) == [AnswerSavepoint("mine", record)]


def test_the_savepoint_of_a_stop_names_whom_else_it_answers_and_not_the_stop_itself() -> None:
    bench = Bench()
    bench.give(SavepointRequested("(order)", ends_for=Purpose.STOP))
    begun = bench.last
    bench.give(SavepointRequested("mine"))
    bench.last = begun
    assert completed_savepoint(bench).request_ids == ("mine",)
    assert {one.request_id for one in bench.of(AnswerSavepoint)} == {"(order)", "mine"}


# terminal


def test_the_terminal_checkpoint_starts_at_once_and_nothing_after_it() -> None:
    bench = Bench(min_pause_ms=5_000)
    bench.complete()
    bench.give(InputExhausted())
    bench.give(CheckpointIdPersisted(2))
    assert bench.of(CheckpointTriggered)[0].terminal
    bench.acknowledge(2)
    bench.give(CheckpointPersisted(bench.persist().record))
    assert bench.machine.final.ends_job
    assert bench.machine.final.checkpoint_id == 2
    assert not bench.give(Tick(), 100_000)
    bench.give(SavepointRequested("late"))
    assert bench.of(AnswerSavepoint)[0].error


def test_no_checkpoint_begins_between_a_drain_and_the_terminal_one() -> None:
    bench = Bench()
    bench.give(Tick(), 1_000)
    (reserved,) = bench.of(PersistCheckpointId)
    bench.give(Draining())
    assert not bench.give(CheckpointIdPersisted(reserved.checkpoint_id)), "the sources have stopped before its trigger"
    assert not bench.give(Tick(), 5_000)
    assert bench.machine.next_wake_ms() is None
    bench.give(InputExhausted())
    assert bench.of(PersistCheckpointId)
    bench.give(AttemptEnded("it died"))
    bench.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    assert bench.machine.next_wake_ms() == bench.now + 1_000


def test_a_terminal_checkpoint_that_fails_is_tried_again_after_the_interval() -> None:
    bench = Bench(tolerable_failures=3)
    bench.give(InputExhausted())
    bench.give(CheckpointIdPersisted(1))
    bench.decline(1)
    assert not bench.of(PersistCheckpointId)
    bench.give(Tick(), 1_000)
    bench.give(CheckpointIdPersisted(2))
    assert bench.of(CheckpointTriggered)[0].terminal


def test_a_new_attempt_needs_its_own_terminal_checkpoint() -> None:
    bench = Bench()
    bench.give(InputExhausted())
    bench.give(CheckpointIdPersisted(1))
    bench.acknowledge(1)
    bench.give(CheckpointPersisted(bench.persist().record))
    bench.give(AttemptEnded("tm lost"))
    bench.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    assert not bench.machine.final.ends_job


# unaligned


def test_an_unaligned_checkpoint_is_triggered_as_such_and_savepoints_and_the_last_one_are_not() -> None:
    bench = Bench(mode=CheckpointMode.UNALIGNED)
    number = bench.trigger()
    assert [one.unaligned for one in bench.of(CheckpointTriggered)] == [True]
    bench.acknowledge(number)
    assert bench.persist().record.unaligned
    bench.give(CheckpointPersisted(bench.persist().record))
    bench.give(SavepointRequested("s"))
    (reserve,) = bench.of(PersistCheckpointId)
    bench.give(CheckpointIdPersisted(reserve.checkpoint_id))
    assert [one.unaligned for one in bench.of(CheckpointTriggered)] == [False]
    bench.acknowledge(reserve.checkpoint_id)
    assert not bench.persist().record.unaligned
    bench.give(CheckpointPersisted(bench.persist().record))
    bench.give(InputExhausted())
    (last,) = bench.of(PersistCheckpointId)
    bench.give(CheckpointIdPersisted(last.checkpoint_id))
    assert [(one.terminal, one.unaligned) for one in bench.of(CheckpointTriggered)] == [(True, False)]


def test_an_aligned_checkpoint_that_takes_too_long_is_triggered_again_as_unaligned_once() -> None:
    bench = Bench(mode=CheckpointMode.UNALIGNED, aligned_timeout_ms=300)
    number = bench.trigger()
    assert [one.unaligned for one in bench.of(CheckpointTriggered)] == [False]
    assert bench.machine.next_wake_ms() == 1_300
    assert not bench.give(Tick(), 299)
    bench.give(Tick(), 1)
    assert [(one.checkpoint_id, one.unaligned) for one in bench.of(CheckpointTriggered)] == [(number, True)]
    assert not bench.give(Tick(), 500)
    bench.acknowledge(number)
    assert bench.persist().record.unaligned


def test_an_aligned_checkpoint_that_is_quick_enough_stays_aligned() -> None:
    bench = Bench(mode=CheckpointMode.UNALIGNED, aligned_timeout_ms=300)
    number = bench.trigger()
    bench.now += 200
    bench.acknowledge(number)
    assert not bench.persist().record.unaligned


# several at a time


def _three() -> tuple[Bench, int, int, int]:
    bench = Bench(max_concurrent=3, timeout_ms=60_000)
    return bench, bench.trigger(), bench.trigger(), bench.trigger()


def test_as_many_checkpoints_are_in_flight_as_the_job_allows() -> None:
    bench, *numbers = _three()
    assert numbers == [1, 2, 3]
    assert not bench.give(Tick(), 5_000)


def test_a_newer_checkpoint_subsumes_those_that_began_before_it_and_they_leave_nothing_behind() -> None:
    bench, first, second, third = _three()
    bench.acknowledge(second)
    bench.give(CheckpointPersisted(bench.persist().record))
    completed, aborted, discarded = bench.last[:3]
    assert isinstance(completed, CheckpointCompleted)
    assert isinstance(aborted, CheckpointAborted)
    assert (aborted.checkpoint_id, aborted.reason) == (first, f"checkpoint {second} subsumes it")
    assert discarded == DiscardPending(first)
    assert not bench.of(TooManyFailures)
    bench.acknowledge(first)
    assert not bench.of(PersistCheckpoint)
    bench.acknowledge(third)
    assert bench.persist().record.checkpoint_id == third


def test_records_are_written_one_at_a_time_in_their_order() -> None:
    bench, first, second, _ = _three()
    bench.acknowledge(first)
    record = bench.persist().record
    bench.acknowledge(second)
    assert not bench.of(PersistCheckpoint)
    assert bench.machine.settling
    bench.give(CheckpointPersisted(record))
    assert bench.persist().record.checkpoint_id == second


def test_a_declined_checkpoint_leaves_the_others_alone() -> None:
    bench = Bench(max_concurrent=2, tolerable_failures=1)
    first, second = bench.trigger(), bench.trigger()
    bench.decline(first)
    assert [one.checkpoint_id for one in bench.of(CheckpointAborted)] == [first]
    bench.acknowledge(second)
    assert bench.persist().record.checkpoint_id == second


def test_savepoints_and_the_last_checkpoint_have_the_time_for_themselves() -> None:
    bench = Bench(max_concurrent=3)
    first = bench.trigger()
    assert not bench.give(SavepointRequested("s"))
    bench.acknowledge(first)
    bench.give(CheckpointPersisted(bench.persist().record))
    (reserve,) = bench.of(PersistCheckpointId)
    bench.give(CheckpointIdPersisted(reserve.checkpoint_id))
    assert [one.kind for one in bench.of(CheckpointTriggered)] == [CheckpointKind.SAVEPOINT]
    assert not bench.give(Tick(), 3_000)


def test_a_savepoint_that_waits_for_the_one_in_flight_asks_for_no_wake_in_the_past() -> None:
    bench = Bench(max_concurrent=2, timeout_ms=60_000)
    bench.trigger()
    bench.give(SavepointRequested("s", 30_000))
    assert not bench.give(Tick(), 1_500)
    assert bench.machine.next_wake_ms() == 1_000 + 30_000


def test_an_attempt_that_ends_takes_all_of_them_with_it() -> None:
    bench, *numbers = _three()
    bench.give(AttemptEnded("a task manager is lost"))
    assert [one.checkpoint_id for one in bench.of(DiscardPending)] == numbers


def test_after_an_increment_that_builds_on_nothing_the_next_checkpoint_is_full() -> None:
    bench = Bench(tolerable_failures=0)
    first = bench.complete()
    second = bench.trigger()
    left_out = StateHandle(size_bytes=4, checksum="c1", checkpoint_id=first, taken_over=True)
    state = SubtaskState("count", 0, (OperatorState("op", StateKind.KEYED_STATE, left_out),))
    bench.acknowledge(second, without=("count", 0))
    bench.give(Acknowledged(ack(second, "count", 0, state=state)))
    assert "builds on what checkpoint 1 holds" in bench.of(CheckpointAborted)[0].reason
    assert not bench.of(TooManyFailures), "it is mended by the next one"
    bench.give(Tick(), 1_000)
    bench.give(CheckpointIdPersisted(third := second + 1))
    assert [one.completed_id for one in bench.of(CheckpointTriggered)] == [0]
    bench.acknowledge(third)
    bench.give(CheckpointPersisted(bench.persist().record))
    bench.give(Tick(), 1_000)
    bench.give(CheckpointIdPersisted(third + 1))
    assert [one.completed_id for one in bench.of(CheckpointTriggered)] == [third], "and then increments again"
