"""What is still at work is reported where it matters: when checkpoints time out, and when a cancel is not obeyed."""

from __future__ import annotations

from dataclasses import replace

from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.counters import AtWork
from lockgate_proto.messages import CheckpointOptions, JobState, SubtaskCounters

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import subtask, word_count

SLOW = SubtaskCounters(subtask("count", 1), (), None, "operator 'slow'", 61_000)
SENTENCE = "Still running at the last report: operator 'slow' of count-1 on tm-b (for 61 s)."


def test_a_checkpoint_that_times_out_names_the_busy_operator() -> None:
    driver = Driver(word_count(checkpoints=CheckpointOptions(timeout_ms=5_000))).run()
    driver.trigger()
    driver.give(events.CountersReported((SLOW,)))
    for _ in range(10):  # whose fault it is shows a while after the timeout
        if driver.state is JobState.RUNNING:
            driver.tick(5_000)
    assert driver.state is JobState.RESTARTING
    assert driver.master.status().error.endswith(SENTENCE)


def test_calls_that_have_returned_are_not_reported() -> None:
    known = AtWork()
    known.update(("count", 1), SLOW)
    assert known.sentence(lambda _: "tm-b") == SENTENCE
    known.update(("count", 1), replace(SLOW, at_work="", at_work_ms=0))
    assert known.sentence(lambda _: "tm-b") == ""


def test_calls_of_another_attempt_are_not_reported() -> None:
    driver = Driver().run()
    driver.give(events.CountersReported((replace(SLOW, subtask=subtask("count", 1, driver.number + 1)),)))
    assert driver.master._attempts.busy() == ""


def test_a_cancel_that_times_out_names_the_busy_operator() -> None:
    for obeyed in (True, False):
        driver = Driver().run()
        driver.give(events.CountersReported((SLOW,)))
        driver.give(events.CancelRequested())
        if obeyed:
            driver.gone("tm-a")
            driver.gone("tm-b")
        driver.tick(6_000)
        driver.tick(6_000)
        result = driver.result()
        assert result.outcome == "CANCELED"
        assert (SENTENCE in result.error) is not obeyed


def test_the_next_attempt_starts_without_it() -> None:
    driver = Driver().run()
    driver.give(events.CountersReported((replace(SLOW, subtask=subtask("count", 1, driver.number)),)))
    driver.fail()
    driver.tick(60_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert driver.master._attempts.busy() == ""
