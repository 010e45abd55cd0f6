"""How many records sources have put out once more, because an attempt began at a snapshot."""

from __future__ import annotations

from dataclasses import replace

from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.read_again import ReadAgain
from lockgate_proto.messages import (
    AttemptRecord,
    LeaderFailover,
    OperatorCounters,
    SubtaskCounters,
    SubtaskPhase,
    SubtaskReport,
)

from tests.unit.coordinator.driver import SLOTS, Driver
from tests.unit.coordinator.job.test_adoption import Successor
from tests.unit.coordinator.jobs import JOB, subtask, word_count

FOUND = AttemptRecord(attempt=1, task_manager_ids=("tm-a", "tm-b"))


def heartbeat(driver: Driver, index: int, read: int) -> None:
    counters = SubtaskCounters(subtask("read", index, driver.number), (OperatorCounters("source", 0, read),))
    driver.give(events.CountersReported((counters,)))


def ended(driver: Driver, index: int, read: int, number: int, sender: str = "") -> None:
    """The last words of a subtask that was cancelled."""
    counters = (OperatorCounters("source", 0, read),)
    report = SubtaskReport(subtask("read", index, number), SubtaskPhase.SUBTASK_CANCELED, counters=counters)
    driver.give(events.TaskManagerReport(sender or ("tm-a", "tm-b")[index], events.Reported(report)))


def again(driver: Driver) -> int:
    return driver.master.status().records_read_again


def next_attempt(driver: Driver) -> None:
    driver.tick(60_000)
    driver.deploy(driver.one(effects.RequestSlots).request)


def test_what_was_read_since_the_snapshot_is_read_again() -> None:
    driver = Driver().run()
    heartbeat(driver, 0, 70)
    driver.fail()
    ended(driver, 0, 90, 1)
    assert again(driver) == 0, "nothing is read again before the next attempt starts"
    next_attempt(driver)
    assert again(driver) == 90
    ended(driver, 1, 5, 1)
    ended(driver, 1, 5, 1)
    assert again(driver) == 95, "each subtask counts once"


def test_last_words_before_the_next_attempt_is_recorded_count_once() -> None:
    """The cancelled attempt ends while the record of its successor is written."""
    driver = Driver().run()
    heartbeat(driver, 0, 1_000)
    driver.fail()
    driver.tick(60_000)
    driver.give(events.SlotsOffered(JOB, driver.one(effects.RequestSlots).request, SLOTS))
    ended(driver, 0, 1_010, 1)
    driver.give(events.AttemptPersisted(2))
    assert again(driver) == 1_010


def test_a_report_from_elsewhere_or_of_an_older_attempt_counts_nothing() -> None:
    driver = Driver().run()
    driver.fail()
    next_attempt(driver)
    ended(driver, 0, 90, 1, sender="tm-b")
    ended(driver, 7, 90, 1, sender="tm-a")
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    driver.fail()
    next_attempt(driver)
    ended(driver, 0, 90, 1)
    assert again(driver) == 0


def test_a_new_leader_counts_what_the_attempt_that_it_replaces_has_read() -> None:
    driver = Driver(token=8)
    driver.deploy(driver.recover(FOUND).request)
    assert again(driver) == 0
    ended(driver, 0, 100, 1)
    ended(driver, 1, 40, 1)
    ended(driver, 1, 9_000, 1, sender="tm-c")
    assert again(driver) == 140


def test_an_adopted_attempt_reads_nothing_again() -> None:
    leader = Successor(graph_=replace(word_count(), leader_failover=LeaderFailover.LEADER_FAILOVER_REATTACH))
    leader.adopt()
    heartbeat(leader, 0, 5_000)
    assert again(leader) == 0


def test_a_snapshot_of_more_than_was_heard_of_counts_nothing() -> None:
    counted = ReadAgain()
    counted.restored({("read", 0): 10}, {("read", 0): 15})
    assert counted.count == 0
    counted.ended(("read", 0), 12)
    assert counted.count == 2
