"""A storage that is full or away restarts nothing: only a job's own faults are counted."""

from __future__ import annotations

import pytest
from lockgate_coordinator.checkpoint.effects import CheckpointAborted, TooManyFailures
from lockgate_coordinator.checkpoint.events import (
    AttemptEnded,
    AttemptRunning,
    CheckpointIdPersisted,
    CheckpointPersistFailed,
    Declined,
    SavepointRequested,
    Tick,
)
from lockgate_coordinator.checkpoint.failures import ANSWER_MS, FailureReason
from lockgate_coordinator.job.life import JobLife
from lockgate_coordinator.job.view import status_message
from lockgate_proto.messages import CheckpointMode, DeclineCause, DeclineCheckpoint, JobState, StorageTrouble

from tests.unit.coordinator.testing_checkpoints import SUBTASKS, TestingCheckpoints, attempt, subtask

TIMEOUT_MS = 10_000


def decline_for_storage(
    checkpoints: TestingCheckpoints, number: int, who: tuple[str, int], attempt_number: int = 1
) -> None:
    cause = DeclineCause.STORAGE_FAILED
    checkpoints.give(Declined(DeclineCheckpoint(subtask(*who, attempt_number), number, "disk full", cause)))


def replays(checkpoints: TestingCheckpoints, number: int, who: tuple[str, int], attempt_number: int = 1) -> None:
    checkpoints.give(
        Declined(DeclineCheckpoint(subtask(*who, attempt_number), number, "replays", DeclineCause.REPLAYING))
    )


def run_out_of_time(checkpoints: TestingCheckpoints, missing: tuple[str, int] = ("count", 1)) -> int:
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=missing)
    checkpoints.give(Tick(), TIMEOUT_MS)
    assert checkpoints.of(CheckpointAborted)
    assert not checkpoints.of(TooManyFailures)
    return number


def test_subtasks_that_cannot_store_their_part_never_end_the_attempt() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    checkpoints.complete()
    durable_ms = checkpoints.now
    for _ in range(20):
        decline_for_storage(checkpoints, checkpoints.trigger(), ("count", 0))
        assert not checkpoints.of(TooManyFailures)
    assert checkpoints.machine.storage_trouble == StorageTrouble(durable_ms, "count-0 declined it: disk full")
    checkpoints.complete()
    assert checkpoints.machine.storage_trouble is None


def test_metadata_that_cannot_be_written_never_ends_the_attempt() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    number = checkpoints.trigger()
    checkpoints.acknowledge(number)
    checkpoints.give(
        CheckpointPersistFailed(number, "cannot write chk-1: No space left on device", FailureReason.STORAGE_FAILED)
    )
    assert not checkpoints.of(TooManyFailures)
    assert checkpoints.machine.storage_trouble == StorageTrouble(0, "cannot write chk-1: No space left on device")


def test_the_jobs_own_faults_count_during_storage_failures() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=1)
    checkpoints.decline(checkpoints.trigger())
    decline_for_storage(checkpoints, checkpoints.trigger(), ("count", 0))
    assert not checkpoints.of(TooManyFailures)
    checkpoints.decline(checkpoints.trigger())
    (too_many,) = checkpoints.of(TooManyFailures)
    assert (
        too_many.reason
        == "checkpoint 3 failed: count-0 declined it: too large: one more failed checkpoint than the job tolerates"
    )


def test_a_snapshot_that_was_still_being_stored_at_the_end_of_its_time_is_the_storages() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    number = run_out_of_time(checkpoints)
    decline_for_storage(checkpoints, number, ("count", 1))
    trouble = checkpoints.machine.storage_trouble
    assert trouble is not None
    assert trouble.reason == "count-1: disk full"
    checkpoints.give(Tick(), ANSWER_MS)
    assert not checkpoints.of(TooManyFailures)


def test_every_missing_subtask_has_to_blame_the_storage() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    number = checkpoints.trigger()
    checkpoints.give(Tick(), TIMEOUT_MS)
    for key in SUBTASKS[1:]:
        decline_for_storage(checkpoints, number, key)
    assert checkpoints.machine.storage_trouble is None
    assert not checkpoints.give(Tick(), ANSWER_MS - 1)
    assert checkpoints.machine.next_wake_ms() == checkpoints.now + 1
    checkpoints.give(Tick(), 1)
    (too_many,) = checkpoints.of(TooManyFailures)
    assert "not acknowledged in time" in too_many.reason


@pytest.mark.parametrize("stranger", [("stranger", 0), ("count", 0)])
def test_one_that_was_not_missing_excuses_no_other(stranger: tuple[str, int]) -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    number = run_out_of_time(checkpoints)
    decline_for_storage(checkpoints, number, stranger)
    decline_for_storage(checkpoints, number, ("count", 1), attempt_number=2)
    decline_for_storage(checkpoints, number + 1, ("count", 1))
    checkpoints.give(Tick(), ANSWER_MS)
    assert checkpoints.of(TooManyFailures)


def test_a_checkpoint_that_waits_for_records_in_flight_after_a_rescale_does_not_end_the_attempt() -> None:
    """One subtask says so, and the others wait for its barrier."""
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    number = checkpoints.trigger()
    checkpoints.give(Tick(), TIMEOUT_MS)
    replays(checkpoints, number, ("count", 1))
    checkpoints.give(Tick(), ANSWER_MS)
    assert not checkpoints.of(TooManyFailures)
    assert checkpoints.machine.storage_trouble is None


@pytest.mark.parametrize(
    ("who", "attempt_number", "behind"), [(("count", 0), 1, 0), (("count", 1), 2, 0), (("count", 1), 1, 1)]
)
def test_only_a_missing_subtask_of_this_attempt_and_checkpoint_is_forgiven(
    who: tuple[str, int], attempt_number: int, behind: int
) -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    number = run_out_of_time(checkpoints)
    replays(checkpoints, number - behind, who, attempt_number)
    checkpoints.give(Tick(), ANSWER_MS)
    assert checkpoints.of(TooManyFailures)


def test_a_subtask_that_replays_aborts_no_checkpoint_under_way() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    number = checkpoints.trigger()
    replays(checkpoints, number, ("count", 1))
    assert not checkpoints.of(CheckpointAborted)


def test_the_next_one_out_of_time_settles_the_doubt_about_the_one_before() -> None:
    checkpoints = TestingCheckpoints(
        tolerable_failures=0, interval_ms=100, timeout_ms=100, mode=CheckpointMode.EXACTLY_ONCE
    )
    checkpoints.trigger(100)
    checkpoints.give(Tick(), 100)
    assert not checkpoints.of(TooManyFailures)
    checkpoints.give(CheckpointIdPersisted(2))
    checkpoints.give(Tick(), 100)
    assert checkpoints.of(TooManyFailures)


def test_a_new_attempt_starts_without_doubt_and_trouble() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    run_out_of_time(checkpoints)
    checkpoints.give(AttemptEnded("a task manager died"))
    checkpoints.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    checkpoints.give(Tick(), 500)
    assert not checkpoints.of(TooManyFailures)
    assert checkpoints.machine.storage_trouble is None


def test_a_savepoint_out_of_time_counts_for_nothing() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=0)
    checkpoints.give(SavepointRequested("s", timeout_ms=100))
    checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.give(Tick(), 100)
    assert checkpoints.of(CheckpointAborted)
    checkpoints.give(Tick(), ANSWER_MS)
    assert not checkpoints.of(TooManyFailures)


def test_the_status_gives_start_reason_and_remedy() -> None:
    trouble = StorageTrouble(1_700_000_000_000, "count-0 declined it: disk full")
    life = JobLife("wordcount", token=1)
    life.state = JobState.RUNNING
    text = status_message(life, None, None, trouble)
    assert text == (
        "the job runs, but no checkpoint has completed since 22:13:20 UTC: count-0 declined it: disk full; make room "
        "in the storage or bring it back, then the job continues automatically"
    )
