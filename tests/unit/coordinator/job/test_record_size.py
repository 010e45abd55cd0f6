"""Records that ZooKeeper would refuse are refused, in words, where they are made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.checkpoint.queue import MAX_SAVEPOINTS
from lockgate_coordinator.job import effects, events, record_size
from lockgate_coordinator.job.first_positions import KnownPositions
from lockgate_coordinator.job.record_size import MAX_RECORD_BYTES, attempt_problem, fitting
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import RecordTooLarge
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.records import JobRecords
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AttemptRecord,
    CheckpointKind,
    CompletedCheckpoint,
    FirstPositions,
    JobRecord,
    JobResult,
    SourceState,
    SplitState,
    TaskManagerAddress,
)
from lockgate_proto.splits import UNBOUNDED

from tests.unit.coordinator.driver import SLOTS, Driver
from tests.unit.coordinator.jobs import JOB, word_count

KEY = "k" * 128
SAVEPOINTS = tuple(  # the most that a job keeps, with names as long as S3 takes them
    CompletedCheckpoint(number, f"s3://b/{'n' * 1_000}/{number}", "0" * 64, kind=CheckpointKind.SAVEPOINT)
    for number in range(MAX_SAVEPOINTS, 0, -1)
)


def attempt(partitions: int, slots: int, task_managers: int = 800) -> AttemptRecord:
    known = KnownPositions()
    splits = tuple(
        SplitState(f"a-topic-with-a-long-name-{number // 100}/{number % 100}", 10**12 + number * 7919**2, UNBOUNDED)
        for number in range(partitions)
    )
    known.found("read", SourceState(splits))
    assert KnownPositions(known.packed()).of("read") == SourceState(splits)
    names = [f"taskmanager-of-the-production-cluster-{number:04}" for number in range(task_managers)]
    addresses = tuple(TaskManagerAddress(name, f"{name}.example.com:40001") for name in names)
    places = tuple(names[number % task_managers] for number in range(slots))
    return AttemptRecord(7, places, 3, 2, addresses=addresses, first_positions=known.packed() if partitions else ())


@pytest.fixture
def records() -> tuple[JobRecords, LeadershipGrant]:
    store, grant = EmbeddedZooKeeper().lead("a-cluster", "a")
    found = JobRecords(store, "a-cluster")
    found.submit(grant, JobRecord(job_key=KEY, run_id="r1", graph=b"graph"))
    return found, grant


def test_many_partitions_and_many_slots_each_fit_into_a_node_of_zookeeper(
    records: tuple[JobRecords, LeadershipGrant],
) -> None:
    for record in (attempt(60_000, 16), attempt(20_000, 8_000), attempt(0, 10_000, 1_000)):
        assert attempt_problem(record) == ""
        records[0].write_attempt(records[1], KEY, record)
        assert records[0].attempt(KEY) == record


def test_both_together_do_not_and_the_sentence_says_what_takes_the_room(
    records: tuple[JobRecords, LeadershipGrant],
) -> None:
    record = attempt(70_000, 10_000, 1_000)
    with pytest.raises(RecordTooLarge):
        records[0].write_attempt(records[1], KEY, record)
    problem = attempt_problem(record)
    assert "of them for where the partitions of its sources begin" in problem
    assert "the rest for its 10,000 slots on 1,000 task managers" in problem
    assert "divide the topics" in problem
    assert "use a lower parallelism or shorter ids" in attempt_problem(attempt(0, 20_000, 2_000))


def test_a_record_that_just_fits_is_written(records: tuple[JobRecords, LeadershipGrant]) -> None:
    room = MAX_RECORD_BYTES - len(encode(AttemptRecord(1, ("",), first_positions=(FirstPositions("v", b"x" * 10**6),))))
    record = AttemptRecord(1, ("",), first_positions=(FirstPositions("v", b"x" * (10**6 + room)),))
    assert len(encode(record)) == MAX_RECORD_BYTES
    assert attempt_problem(record) == ""
    records[0].write_attempt(records[1], KEY, record)
    assert attempt_problem(replace(record, token=1)) != ""


def test_a_result_lists_the_newest_savepoints_that_fit_and_no_file_is_deleted(
    records: tuple[JobRecords, LeadershipGrant],
) -> None:
    whole = JobResult(KEY, "r1", outcome="FINISHED", retained=SAVEPOINTS)
    with pytest.raises(RecordTooLarge):
        records[0].write_result(records[1], whole)
    found = fitting(whole)
    records[0].write_result(records[1], found)
    assert 800 < len(found.retained) < MAX_SAVEPOINTS
    assert found.retained == SAVEPOINTS[: len(found.retained)]
    assert found.keep_files
    assert "The job has 1,000 snapshots" in found.error
    few = replace(whole, retained=SAVEPOINTS[:10])
    assert fitting(few) is few


@pytest.mark.parametrize("is_first", [True, False])
def test_a_job_whose_attempt_record_is_too_large_fails_in_words(
    monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """When its first attempt gets its slots, or a later one."""
    driver = Driver(word_count())
    if is_first:
        monkeypatch.setattr(record_size, "MAX_RECORD_BYTES", 20)
        request = driver.recover().request
    else:
        driver.run()
        monkeypatch.setattr(record_size, "MAX_RECORD_BYTES", 20)
        driver.fail()
        driver.tick(10_000)
        request = driver.one(effects.RequestSlots).request
    driver.give(events.SlotsOffered(JOB, request, SLOTS))
    assert driver.of(effects.PersistAttempt) == []
    assert "2 slots on 2 task managers" in driver.master.status().error
    result = driver.result()
    assert (result.outcome, result.keep_files) == ("FAILED", True)
