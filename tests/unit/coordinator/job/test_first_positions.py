"""Where a source began is durable before it is read, and every later attempt begins there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.job import effects, events, record_size
from lockgate_coordinator.job.first_positions import KnownPositions
from lockgate_proto.codec import decode, encode
from lockgate_proto.messages import (
    AssignSplits,
    AttemptProgress,
    AttemptRecord,
    DiscoverSplits,
    FailureCause,
    JobGraph,
    KafkaSource,
    KafkaStart,
    LeaderFailover,
    SplitsDiscovered,
    SplitState,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskState,
)
from lockgate_proto.splits import UNBOUNDED

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import attempt, source_state, word_count

LATEST = KafkaSource("h:9", ("t",), KafkaStart.KAFKA_LATEST)
FOUND = tuple(SplitState(f"t/{number}", 50 + number, UNBOUNDED) for number in range(4))


def graph(source: KafkaSource = LATEST) -> JobGraph:
    return word_count(source)


def found(driver: Driver, splits: tuple[SplitState, ...] = FOUND, number: int = 1, *, complete: bool = False) -> None:
    driver.give(events.SplitsFound(SplitsDiscovered(attempt(number), "read", splits, complete, round=1)))


def assigned(driver: Driver) -> dict[str, int]:
    """Split to offset, in the newest batch."""
    return {split.split: split.offset for _, body in driver.sent(AssignSplits) for split in body.splits}


def record(driver: Driver) -> AttemptRecord:
    """The newest that was asked to be written, as it is read back."""
    newest = [effect.record for effect in driver.all if isinstance(effect, effects.PersistAttempt)][-1]
    return decode(AttemptRecord, encode(newest))


def test_no_split_is_assigned_before_the_record_is_written() -> None:
    driver = Driver(graph()).run()
    found(driver)
    assert (driver.one(effects.PersistAttempt).record.attempt, assigned(driver)) == (1, {})
    found(driver, tuple(replace(split, offset=90) for split in FOUND))
    assert (driver.of(effects.PersistAttempt), assigned(driver)) == ([], {}), "an answer that came twice"
    driver.give(events.PersistFailed(events.PersistKind.ATTEMPT, "ZooKeeper is away", 1))
    driver.tick(1_000)
    assert assigned(driver) == {}
    driver.give(events.AttemptPersisted(1))
    assert assigned(driver) == {split.split: split.offset for split in FOUND}
    driver.give(events.AttemptPersisted(1))
    assert assigned(driver) == {}


@pytest.mark.parametrize("is_written", [True, False])
def test_the_next_attempt_begins_there_and_looks_only_for_new_partitions(is_written: bool) -> None:
    """Not written: it was on its way when the attempt failed, and is in the record of the next one."""
    driver = Driver(graph()).run()
    found(driver)
    if is_written:
        driver.give(events.AttemptPersisted(1))
    driver.fail()
    driver.tick(10_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    ((_, asked),) = driver.sent(DiscoverSplits)
    assert asked.known == tuple(split.split for split in FOUND)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert assigned(driver) == {split.split: split.offset for split in FOUND}


def test_the_next_leader_begins_there() -> None:
    former = Driver(graph()).run()
    found(former)
    driver = Driver(graph(), token=9).run(attempt=record(former))
    assert assigned(driver) == {split.split: split.offset for split in FOUND}


def test_a_bounded_source_ends_where_it_was_to_end_first() -> None:
    former = Driver(graph(replace(LATEST, bounded=True))).run()
    found(former, tuple(replace(split, offset=0, end=60) for split in FOUND), complete=True)
    driver = Driver(graph(replace(LATEST, bounded=True)), token=9)
    driver.deploy(driver.recover(record(former)).request)
    assert driver.sent(DiscoverSplits) == []
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    orders = [body for _, body in driver.sent(AssignSplits)]
    assert {split.end for body in orders for split in body.splits} == {60}
    assert [body.complete for body in orders] == [True, True]


def test_a_partition_in_the_snapshot_continues_and_the_others_begin_where_they_began() -> None:
    """Its barrier came before it got the others."""
    driver = Driver(graph()).run()
    found(driver)
    driver.give(events.AttemptPersisted(1))
    states: dict[tuple[str, int], SubtaskState] = {
        ("read", index): source_state("read", index, splits, complete=False)
        for index, splits in enumerate([(SplitState("t/0", 70, UNBOUNDED),), ()])
    }
    checkpoint_id = driver.trigger()
    driver.acknowledge(checkpoint_id, states)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.fail()
    driver.tick(10_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert assigned(driver) == {split.split: split.offset for split in FOUND[1:]}


def test_a_record_of_an_earlier_version_has_none_and_the_source_is_asked() -> None:
    driver = Driver(graph(), token=9)
    driver.deploy(driver.recover(AttemptRecord(attempt=3, task_manager_ids=("tm-a", "tm-b"))).request)
    ((_, asked),) = driver.sent(DiscoverSplits)
    assert asked.known == ()
    found(driver, number=4)
    assert [item.vertex_id for item in record(driver).first_positions] == ["read"]


def test_a_job_whose_record_has_no_room_for_its_partitions_fails_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(graph()).run()
    monkeypatch.setattr(record_size, "MAX_RECORD_BYTES", 60)
    found(driver)
    status = driver.master.status()
    assert driver.master.is_ending
    assert "of them for where the partitions of its sources begin" in status.error
    assert "2 slots on 2 task managers" in status.error
    assert driver.of(effects.PersistAttempt) == []
    assert driver.result().outcome == "FAILED"


def test_a_fault_of_the_source_is_none_of_its_positions() -> None:
    driver = Driver(graph()).run()
    failed = SplitsDiscovered(attempt(1), "read", error="away", cause=FailureCause.FAULT, round=1)
    driver.give(events.SplitsFound(failed))
    driver.tick(10_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert record(driver).attempt == 2
    assert record(driver).first_positions == ()
    ((_, asked),) = driver.sent(DiscoverSplits)
    assert asked.known == ()


def test_a_write_that_is_tried_again_does_not_keep_a_job_from_ending() -> None:
    """An operator drains it while ZooKeeper takes no attempt record."""
    driver = Driver(graph()).run()
    found(driver)
    driver.give(events.PersistFailed(events.PersistKind.ATTEMPT, "ZooKeeper is away", 1))
    driver.give(events.StopRequested("s", drain=True))
    driver.give(events.OrdersPersisted(driver.one(effects.PersistOrders).orders))
    driver.all_report(SubtaskPhase.SUBTASK_EXHAUSTED)
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.commit(number)
    assert driver.result().outcome == "FINISHED"


def test_what_an_adopted_attempt_reads_is_stored_where_an_earlier_version_has_not() -> None:
    """So that a part that is lost begins there, and not at the beginning, beside the partitions of the others."""
    driver = Driver(replace(graph(), leader_failover=LeaderFailover.LEADER_FAILOVER_REATTACH), token=9)
    request = driver.recover(AttemptRecord(attempt=1, task_manager_ids=("tm-a", "tm-b"))).request
    for index, name in enumerate(("tm-a", "tm-b")):
        running = SubtaskPhase.SUBTASK_RUNNING
        source = SubtaskProgress("read", index, running, has_assigned=True, assigned=FOUND[index::2])
        own = AttemptProgress(attempt(1), (source, SubtaskProgress("count", index, running)))
        driver.give(events.StillRunning(name, attempt(1), own))
    assert driver.offer(request).record.attempt == 1, "it is adopted"
    driver.give(events.AttemptPersisted(1))
    (stored,) = record(driver).first_positions
    state = KnownPositions((stored,)).of("read")
    assert state is not None
    assert sorted(state.splits, key=lambda split: split.split) == list(FOUND)
