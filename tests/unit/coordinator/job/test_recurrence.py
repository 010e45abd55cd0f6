"""What fails again and again on the same records is recognised; what the environment do is not."""

from __future__ import annotations

import pytest
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.attempt import AttemptFailed
from lockgate_coordinator.job.recurrence import ENOUGH, STORED, Recurrence, place_text
from lockgate_proto.codec import decode, encode
from lockgate_proto.messages import (
    AttemptRecord,
    FailureCause,
    FailurePlace,
    JobState,
    SplitRange,
    SubtaskPhase,
    SubtaskReport,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import TOKEN, subtask

OF_RECORDS = (FailureCause.DATA_ERROR, FailureCause.INTERNAL_ERROR)
PASSING = (FailureCause.FAULT, FailureCause.USER_CODE, FailureCause.PEER_LOST)


def failed(
    cause: FailureCause = FailureCause.DATA_ERROR,
    error: str = "'x' is no INT",
    ranges: tuple[SplitRange, ...] = (),
    operator: str = "parse",
    index: int = 0,
) -> AttemptFailed:
    place = FailurePlace(operator, "", ranges)
    return AttemptFailed(cause, f"count-{index}: {error}", subtask=("count", index), error=error, place=place)


def reported(driver: Driver, cause: FailureCause, error: str = "'x' is no INT", operator: str = "parse") -> None:
    """A subtask of the newest attempt has failed."""
    place = FailurePlace(operator, "amount", (SplitRange("a.csv", 100, 200),))
    who = subtask("read", 0, driver.number)
    report = SubtaskReport(who, SubtaskPhase.SUBTASK_FAILED, cause, error, place)
    driver.give(events.Reported(report))


def run_again(driver: Driver) -> None:
    driver.tick(60_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)


@pytest.mark.parametrize("cause", OF_RECORDS)
def test_the_same_records_that_are_refused_again_and_again_end_the_job(cause: FailureCause) -> None:
    driver = Driver().run()
    driver.complete()
    for _ in range(ENOUGH - 1):
        reported(driver, cause)
        assert driver.state is JobState.RESTARTING
        run_again(driver)
    reported(driver, cause)
    assert driver.master.status().state is not JobState.RESTARTING
    driver.tick(60_000)
    result = driver.result()
    assert result.outcome == "FAILED"
    assert [checkpoint.checkpoint_id for checkpoint in result.retained] == [1]
    assert result.error.startswith("read-0 on tm-a: 'x' is no INT")
    assert "operator 'parse', column 'amount', split a.csv from offset 100 to 200" in result.error
    assert result.failure is not None
    assert (result.failure.cause, result.failure.times, result.failure.attempt) == (cause, ENOUGH, ENOUGH)
    assert result.failure.place == FailurePlace("parse", "amount", (SplitRange("a.csv", 100, 200),))


@pytest.mark.parametrize("cause", PASSING)
def test_transient_failures_are_retried_as_long_as_the_strategy_allows(cause: FailureCause) -> None:
    driver = Driver().run()
    for _ in range(5 * ENOUGH):
        reported(driver, cause)
        assert driver.state is JobState.RESTARTING
        assert driver.master.status().failure.cause is cause  # type: ignore[union-attr]
        run_again(driver)
    assert driver.state is JobState.RUNNING


def test_one_exception_of_user_code_restarts_the_job_from_its_checkpoint() -> None:
    driver = Driver().run()
    driver.complete()
    reported(driver, FailureCause.DATA_ERROR)
    run_again(driver)
    assert driver.state is JobState.RUNNING
    assert driver.master.status().restarts == 1


def test_ranges_that_overlap_are_the_same_records() -> None:
    known = Recurrence()
    assert known.noted(failed(ranges=(SplitRange("a", 0, 50),)), 1) == 1
    assert known.noted(failed(ranges=(SplitRange("b", 0, 50),)), 1) == 1
    assert known.noted(failed(ranges=(SplitRange("a", 40, 90),)), 2) == 2
    assert known.noted(failed(ranges=(SplitRange("a", 90, 95),)), 2) == 1
    assert known.noted(failed(ranges=(SplitRange("c", 0, 9), SplitRange("a", 60, 61))), 7) == 3


def test_without_a_source_the_checkpoint_shows_what_is_read_again() -> None:
    known = Recurrence()
    assert [known.noted(failed(), 4) for _ in range(2)] == [1, 2]
    assert known.noted(failed(), 5) == 1


def test_two_records_that_are_refused_by_turns_are_counted_apart() -> None:
    known = Recurrence()
    counts = [known.noted(failed(error=error), 4) for error in ("'x' is no INT", "'y' is no INT") * 3]
    assert counts == [1, 1, 2, 2, 3, 3]


def test_another_operator_or_error_is_another_failure() -> None:
    known = Recurrence()
    assert known.noted(failed(), 4) == 1
    assert known.noted(failed(operator="other"), 4) == 1
    assert known.noted(failed(error="overflow"), 4) == 1
    assert known.noted(failed(index=1), 4) == 2, "after a restart another subtask may read the same"


def test_the_trace_and_addresses_below_an_error_do_not_make_it_another_one() -> None:
    known = Recurrence()
    assert known.noted(failed(error="TypeError: <f at 0x7f00aa>\n  File a, line 1"), 4) == 1
    assert known.noted(failed(error="TypeError: <f at 0x7f11bb>\n  File a, line 2"), 4) == 2


def test_a_new_leader_counts_on_from_the_record_of_the_last_attempt() -> None:
    driver = Driver().run()
    driver.complete()
    reported(driver, FailureCause.DATA_ERROR)
    run_again(driver)
    reported(driver, FailureCause.DATA_ERROR)
    driver.tick(60_000)
    record = driver.offer(driver.one(effects.RequestSlots).request).record
    assert [(found.operator_id, found.times) for found in record.failures] == [("parse", 2)]
    encoded = decode(AttemptRecord, encode(record))
    successor = Driver(token=TOKEN + 1).run(attempt=encoded, next_checkpoint_id=5)
    reported(successor, FailureCause.DATA_ERROR)
    successor.tick(60_000)
    result = successor.result()
    assert result.failure is not None
    assert (result.outcome, result.failure.times) == ("FAILED", ENOUGH)


def test_stored_failures_are_small_and_the_newest() -> None:
    known = Recurrence()
    ranges = (SplitRange("x" * 5_000, 0, 9), *(SplitRange(f"{number}", 0, 9) for number in range(50)))
    for number in range(STORED + 3):
        known.noted(failed(error=f"{number} {'long ' * 1_000}", ranges=ranges), 4)
    assert known.noted(failed(error=f"0 {'long ' * 1_000}", ranges=ranges), 4) == 2
    stored = known.stored()
    assert [found.words[:2] for found in stored] == ["4 ", "5 ", "6 ", "7 ", "8 ", "9 ", "10", "0 "]
    assert sum(len(encode(found)) for found in stored) < 4_000
    successor = Recurrence()
    successor.recovered(stored)
    assert successor.noted(failed(error=f"0 {'long ' * 1_000}", ranges=ranges), 9) == 3
    assert successor.noted(failed(error=f"0 {'long ' * 1_000}another", ranges=ranges), 9) == 1


def test_the_place_is_reported_as_far_as_it_is_known() -> None:
    ranges = tuple(SplitRange(name, 0, 9) for name in "abcd")
    assert place_text(None) == ""
    assert place_text(FailurePlace("", "", ranges[:1])) == "split a from offset 0 to 9"
    assert place_text(FailurePlace("x", "", ranges)).endswith("split c from offset 0 to 9, and others")
