"""A JobMaster that moves a slow subtask: when it may, what it writes down, what it does not count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.deploy_size import check_size
from lockgate_coordinator.job.stragglers import AVOID_MS
from lockgate_proto.messages import (
    AttemptRecord,
    CancelAttempt,
    Deploy,
    JobEventKind,
    JobGraph,
    JobState,
    NoRestart,
    RestartStrategy,
    StragglerMove,
    StragglerReplacement,
    SubtaskCounters,
    SubtaskEffort,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import subtask, word_count

OPTION = StragglerReplacement(factor=3.0, window_ms=4_000, pause_ms=10_000)
SPARE = events.Spare("tm-c", "c:1", 1)
BUSY_US = 190_000  # of each 200 ms
TEXT = "subtask 1 of 'count' takes 4.1 times as long per record as its siblings; moved from tm-b (b:1) to tm-c (c:1)"


def graph(option: StragglerReplacement | None = OPTION) -> JobGraph:
    return replace(word_count(restart=RestartStrategy(NoRestart())), straggler_replacement=option)


def tell(driver: Driver, for_ms: int, spares: tuple[events.Spare, ...] = (SPARE,), slow: int = 1) -> bool:
    """Heartbeats for so long; count-`slow` gets through a fifth of what the other does. True when a move came of it."""
    began = driver.now
    while driver.now - began < for_ms:
        steps = (driver.now - began) // 200 + 1
        counters = tuple(
            SubtaskCounters(
                subtask("count", index, driver.number),
                (),
                SubtaskEffort(BUSY_US * steps, 10 * steps, (1_000 if index == slow else 5_000) * steps, 0, 1_000),
            )
            for index in range(2)
        )
        driver.give(events.CountersReported(counters, spares), 200)
        if driver.of(effects.RequestSlots):
            return True
    return False


def running(option: StragglerReplacement | None = OPTION) -> Driver:
    """With a completed checkpoint."""
    driver = Driver(graph(option)).run()
    driver.complete()
    return driver


def test_a_slow_subtask_is_moved_from_the_last_checkpoint_and_that_is_no_failure() -> None:
    driver = running()
    assert tell(driver, 6_000)
    assert driver.emitted(JobEventKind.SUBTASK_MOVED) == [TEXT]
    assert not driver.emitted(JobEventKind.ATTEMPT_FAILED)
    assert {name for name, _ in driver.sent(CancelAttempt)} == {"tm-a", "tm-b"}
    request = driver.one(effects.RequestSlots)
    assert (request.preferred, request.avoided) == (("tm-a", "tm-c"), ("tm-b",))
    record = driver.offer(request.request, (SlotOffer("tm-a", "a:1"), SlotOffer("tm-c", "c:1"))).record
    assert record.restarts == 0
    assert record.moves == (StragglerMove((1,), "tm-b", "tm-c", TEXT),)
    driver.give(events.AttemptPersisted(driver.number))
    deploys = dict(driver.sent(Deploy))
    assert set(deploys) == {"tm-a", "tm-c"}
    assert deploys["tm-c"].restored_checkpoint_id == 1
    status = driver.master.status()
    assert (status.attempt, status.restarts, status.straggler, status.error) == (2, 0, TEXT, "")


def test_a_job_that_does_not_ask_for_it_is_left_alone() -> None:
    driver = running(None)
    assert not tell(driver, 20_000)


def test_without_a_completed_checkpoint_nothing_is_moved() -> None:
    driver = Driver(graph()).run()
    assert not tell(driver, 20_000)
    driver.complete()
    assert tell(driver, 6_000)


def test_a_checkpoint_that_is_too_old_is_not_gone_back_to() -> None:
    driver = running()
    assert not tell(driver, OPTION.pause_ms + 2_000, spares=())
    assert driver.emitted(JobEventKind.SUBTASK_STAYS)
    assert not tell(driver, 2_000)
    driver.complete()
    assert tell(driver, 6_000)


def savepoint(driver: Driver) -> None:
    driver.give(events.SavepointRequested("s", 600_000))


def stop(driver: Driver) -> None:
    driver.give(events.StopRequested("stop"))


@pytest.mark.parametrize(
    "meanwhile", [savepoint, stop, lambda driver: driver.give(events.Suspended())], ids=["savepoint", "stop", "cut"]
)
def test_nothing_is_moved_while_another_operation_is_in_progress(meanwhile: Any) -> None:
    driver = running()
    meanwhile(driver)
    assert not tell(driver, 8_000)


def test_a_checkpoint_that_is_being_written_is_waited_for() -> None:
    driver = running()
    persist = driver.collect()
    assert not tell(driver, 6_000)
    driver.persisted(persist)
    assert tell(driver, 1_000)


def test_a_later_leader_knows_of_the_move() -> None:
    moves = (StragglerMove((1,), "tm-b", "tm-c", TEXT),)
    before = running()
    checkpoint, metadata = before.complete()
    driver = Driver(graph())
    request = driver.recover(AttemptRecord(2, ("tm-a", "tm-c"), 1, 0, moves), (checkpoint,), metadata, 3)
    assert request.avoided == ("tm-b",)
    assert driver.master.status().straggler == TEXT
    assert driver.offer(request.request).record.moves == moves


def test_a_place_is_avoided_when_a_slot_needs_a_new_one_later() -> None:
    driver = running()
    assert tell(driver, 6_000)
    driver.deploy(driver.one(effects.RequestSlots).request, (SlotOffer("tm-a", "a:1"), SlotOffer("tm-c", "c:1")))
    stragglers = driver.master._attempts.stragglers
    assert stragglers.avoided(driver.now + AVOID_MS - 60_000) == ("tm-b",)
    driver.give(events.TaskManagerLost("tm-b", "its process has ended"))
    assert stragglers.avoided(driver.now) == ()


def test_a_move_whose_messages_would_be_too_large_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = running()
    monkeypatch.setattr("lockgate_coordinator.job.deploy_size.check_size", lambda deploy: check_size(deploy, 10))
    assert not tell(driver, 8_000)
    (text,) = driver.emitted(JobEventKind.SUBTASK_STAYS)
    assert "fit into a message" in text
    assert driver.state is JobState.RUNNING
