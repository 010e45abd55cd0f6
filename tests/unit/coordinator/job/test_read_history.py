"""What was read second by second: bounded, in order, and the same sum as a status has."""

from __future__ import annotations

from lockgate_coordinator.job import events
from lockgate_coordinator.job.read_history import KEPT, ReadRecorder
from lockgate_proto.messages import OperatorCounters, SubtaskCounters

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import subtask


def test_a_moment_a_second_is_kept() -> None:
    recorder = ReadRecorder()
    for number in range(30):
        recorder.note(number, 100 * number)
    found = recorder.history(1_000_000)
    assert found.unix_ms == (1_000_000, 1_001_000, 1_002_000)
    assert found.records == (0, 10, 20)


def test_only_the_last_minutes_are_kept() -> None:
    recorder = ReadRecorder()
    for number in range(2 * KEPT + 7):
        recorder.note(number, 1_000 * number)
    found = recorder.history(0)
    assert found.records == tuple(range(KEPT + 7, 2 * KEPT + 7))
    assert found.unix_ms == tuple(1_000 * number for number in found.records)
    assert len(recorder._totals) == len(recorder._at_ms) == KEPT


def _read(driver: Driver, *records: int, number: int = 1) -> None:
    counters = [
        SubtaskCounters(subtask("read", index, number), (OperatorCounters("source", records_out=count),))
        for index, count in enumerate(records)
    ]
    driver.give(events.CountersReported(tuple(counters)))


def test_heartbeats_of_the_present_attempt_make_the_history() -> None:
    driver = Driver().run()
    for records in ((5, 7), (11, 7), (20, 30)):
        driver.now += 1_000
        _read(driver, *records)
    driver.now += 1_000
    _read(driver, 1_000, number=9)
    status = driver.master.status()
    assert driver.master.attempts.counters.reads.history(0).records == (12, 18, 50)
    assert status.records_read == 50
    assert status.reads is None, "only on request"
