"""A storage that is full or away restarts nothing: only a job's own faults are counted."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import CheckpointMode, DeclineCause, DeclineCheckpoint, JobState, StorageTrouble

from coordinator.checkpoint.effects import CheckpointAborted, TooManyFailures
from coordinator.checkpoint.events import (
    AttemptEnded,
    AttemptRunning,
    CheckpointIdPersisted,
    CheckpointPersistFailed,
    Declined,
    SavepointRequested,
    Tick,
)
from coordinator.checkpoint.failures import ANSWER_MS, Fault
from coordinator.recovery.view import waits_for
from tests.unit.coordinator.checkpoint_bench import SUBTASKS, Bench, attempt, subtask

TIMEOUT_MS = 10_000


def decline_for_storage(bench: Bench, number: int, who: tuple[str, int], attempt_number: int = 1) -> None:
    cause = DeclineCause.STORAGE_FAILED
    bench.give(Declined(DeclineCheckpoint(subtask(*who, attempt_number), number, "disk full", cause)))


def run_out_of_time(bench: Bench, missing: tuple[str, int] = ("count", 1)) -> int:
    number = bench.trigger()
    bench.acknowledge(number, without=missing)
    bench.give(Tick(), TIMEOUT_MS)
    assert bench.of(CheckpointAborted)
    assert not bench.of(TooManyFailures)
    return number


def test_subtasks_that_cannot_store_their_part_never_end_the_attempt() -> None:
    bench = Bench(tolerable_failures=0)
    bench.complete()
    durable_ms = bench.now
    for _ in range(20):
        decline_for_storage(bench, bench.trigger(), ("count", 0))
        assert not bench.of(TooManyFailures)
    assert bench.machine.storage_trouble == StorageTrouble(durable_ms, "count-0 declined it: disk full")
    bench.complete()
    assert bench.machine.storage_trouble is None


def test_metadata_that_cannot_be_written_never_ends_the_attempt() -> None:
    bench = Bench(tolerable_failures=0)
    number = bench.trigger()
    bench.acknowledge(number)
    bench.give(CheckpointPersistFailed(number, "cannot write chk-1: No space left on device", Fault.STORAGE))
    assert not bench.of(TooManyFailures)
    assert bench.machine.storage_trouble == StorageTrouble(0, "cannot write chk-1: No space left on device")


def test_the_jobs_own_faults_still_count_beside_the_storages() -> None:
    bench = Bench(tolerable_failures=1)
    bench.decline(bench.trigger())
    decline_for_storage(bench, bench.trigger(), ("count", 0))
    assert not bench.of(TooManyFailures)
    bench.decline(bench.trigger())
    (too_many,) = bench.of(TooManyFailures)
    assert (
        too_many.reason
        == "checkpoint 3 failed: count-0 declined it: too large: one failed checkpoint more than the job tolerates"
    )


def test_a_snapshot_that_was_still_being_stored_at_the_end_of_its_time_is_the_storages() -> None:
    bench = Bench(tolerable_failures=0)
    number = run_out_of_time(bench)
    decline_for_storage(bench, number, ("count", 1))
    trouble = bench.machine.storage_trouble
    assert trouble is not None
    assert trouble.reason == "count-1: disk full"
    bench.give(Tick(), ANSWER_MS)
    assert not bench.of(TooManyFailures)


def test_every_missing_subtask_has_to_blame_the_storage() -> None:
    bench = Bench(tolerable_failures=0)
    number = bench.trigger()
    bench.give(Tick(), TIMEOUT_MS)
    for key in SUBTASKS[1:]:
        decline_for_storage(bench, number, key)
    assert bench.machine.storage_trouble is None
    assert not bench.give(Tick(), ANSWER_MS - 1)
    assert bench.machine.next_wake_ms() == bench.now + 1
    bench.give(Tick(), 1)
    (too_many,) = bench.of(TooManyFailures)
    assert "not acknowledged in time" in too_many.reason


@pytest.mark.parametrize("stranger", [("stranger", 0), ("count", 0)])
def test_one_that_was_not_missing_excuses_no_other(stranger: tuple[str, int]) -> None:
    bench = Bench(tolerable_failures=0)
    number = run_out_of_time(bench)
    decline_for_storage(bench, number, stranger)
    decline_for_storage(bench, number, ("count", 1), attempt_number=2)
    decline_for_storage(bench, number + 1, ("count", 1))
    bench.give(Tick(), ANSWER_MS)
    assert bench.of(TooManyFailures)


def test_the_next_one_out_of_time_settles_the_doubt_about_the_one_before() -> None:
    bench = Bench(tolerable_failures=0, interval_ms=100, timeout_ms=100, mode=CheckpointMode.EXACTLY_ONCE)
    bench.trigger(100)
    bench.give(Tick(), 100)
    assert not bench.of(TooManyFailures)
    bench.give(CheckpointIdPersisted(2))
    bench.give(Tick(), 100)
    assert bench.of(TooManyFailures)


def test_a_new_attempt_starts_without_doubt_and_trouble() -> None:
    bench = Bench(tolerable_failures=0)
    run_out_of_time(bench)
    bench.give(AttemptEnded("a task manager died"))
    bench.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    bench.give(Tick(), 500)
    assert not bench.of(TooManyFailures)
    assert bench.machine.storage_trouble is None


def test_a_savepoint_out_of_time_counts_for_nothing() -> None:
    bench = Bench(tolerable_failures=0)
    bench.give(SavepointRequested("s", timeout_ms=100))
    bench.give(CheckpointIdPersisted(1))
    bench.give(Tick(), 100)
    assert bench.of(CheckpointAborted)
    bench.give(Tick(), ANSWER_MS)
    assert not bench.of(TooManyFailures)


def test_the_status_says_since_when_why_and_what_to_do() -> None:
    trouble = StorageTrouble(1_700_000_000_000, "count-0 declined it: disk full")
    text = waits_for(JobState.RUNNING, None, "", trouble, suspended=False, ending=False)
    assert text == (
        "the job runs, but nothing was made durable since 22:13:20 UTC: count-0 declined it: disk full; make room in "
        "the storage or bring it back, then the job goes on by itself"
    )
