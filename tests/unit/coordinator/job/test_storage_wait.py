"""A storage that does not give a snapshot back is waited for: no strategy is asked, no restart counted."""

from __future__ import annotations

import pytest
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.backoff import LONGEST_MS
from lockgate_proto.messages import (
    AttemptRecord,
    FailureCause,
    FixedDelayRestart,
    JobState,
    NoRestart,
    RestartStrategy,
    StorageTrouble,
    SubtaskPhase,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import word_count

AWAY = FailureCause.STORAGE_AWAY
WALL_MS = 1_000_000  # the driver's wall clock minus its monotonic one


def run_again(driver: Driver, after_ms: int = LONGEST_MS) -> None:
    driver.tick(after_ms)
    driver.deploy(driver.one(effects.RequestSlots).request)


def pause_ms(driver: Driver) -> int:
    return driver.one(effects.WakeAt).at_ms - driver.now


@pytest.mark.parametrize("strategy", [NoRestart(), FixedDelayRestart(attempts=1, delay_ms=10)])
def test_a_restore_is_tried_for_as_long_as_the_storage_is_away(strategy: NoRestart | FixedDelayRestart) -> None:
    driver = Driver(word_count(restart=RestartStrategy(strategy)))
    driver.deploy(driver.recover().request)
    driver.now += 7
    since_ms, pauses = driver.now + WALL_MS, []
    for number in range(8):
        driver.fail(AWAY, f"try {number}: no route to host")
        assert driver.state is JobState.RESTARTING
        pauses.append(pause_ms(driver))
        assert driver.master.status().storage_trouble == StorageTrouble(
            since_ms, f"count-0 on tm-a: try {number}: no route to host"
        )
        assert "the job has waited for its storage since" in driver.master.status().message
        assert f"try {number}: no route to host; bring the storage back" in driver.master.status().message
        run_again(driver)
        assert driver.master.status().storage_trouble is not None, "until it has given everything back"
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    status = driver.master.status()
    assert (status.state, status.restarts, status.storage_trouble) == (JobState.RUNNING, 0, None)
    assert status.attempt == 9


def test_the_job_s_own_faults_count_as_if_the_storage_had_never_been_away() -> None:
    driver = Driver(word_count(restart=RestartStrategy(FixedDelayRestart(attempts=1, delay_ms=10)))).run()
    driver.fail(FailureCause.FAULT, "broke")
    run_again(driver)
    for _ in range(3):
        driver.fail(AWAY, "timed out")
        run_again(driver)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert driver.master.status().restarts == 1
    driver.fail(FailureCause.FAULT, "broke again")
    driver.tick(60_000)
    assert "none is left" in driver.result().error


def test_another_outage_is_waited_for_from_its_own_beginning() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    driver.fail(AWAY, "timed out")
    run_again(driver)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    driver.fail(FailureCause.FAULT, "broke")
    run_again(driver)
    driver.fail(AWAY, "timed out")
    assert pause_ms(driver) == 1_000
    assert driver.master.status().storage_trouble == StorageTrouble(driver.now + WALL_MS, "count-0 on tm-a: timed out")


def test_a_job_that_waits_for_its_storage_can_be_cancelled() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    driver.fail(AWAY, "timed out")
    driver.give(events.CancelRequested())
    driver.tick(60_000)
    assert driver.result().outcome == "CANCELED"


def test_a_leader_that_cannot_read_the_snapshot_says_since_when_it_waits() -> None:
    driver = Driver()
    for _ in range(2):
        driver.give(events.RecoveryFailed("cannot read chk-3: timed out", retryable=True))
        assert driver.master.status().storage_trouble == StorageTrouble(1_000 + WALL_MS, "cannot read chk-3: timed out")
        assert "has waited for its storage since 00:16:41 UTC: cannot read chk-3" in driver.master.status().message
        driver.tick(LONGEST_MS)
        assert driver.of(effects.Recover)
    driver.recover(attempt=AttemptRecord(1, ("tm-a", "tm-b"), 1, 0))
    assert driver.master.status().storage_trouble is None
