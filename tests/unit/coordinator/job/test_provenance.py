"""Reports count only from where their subtask is placed. count-0 and read-0 are on tm-a, count-1 and read-1 on tm-b."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.job import effects, events
from lockgate_proto.messages import (
    AttemptGone,
    CheckpointCommitted,
    CheckpointOptions,
    DeclineCheckpoint,
    FailureCause,
    FirstRecord,
    JobEventKind,
    JobState,
    OperatorCounters,
    SplitsDiscovered,
    SplitState,
    SubtaskCounters,
    SubtaskPhase,
    SubtaskReport,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import SUBTASKS, ack, attempt, source_state, subtask, word_count

PLACES = {("read", 0): "tm-a", ("read", 1): "tm-b", ("count", 0): "tm-a", ("count", 1): "tm-b"}


def give_report(driver: Driver, who: str, report: events.Report) -> list[effects.Effect]:
    return driver.give(events.TaskManagerReport(who, report))


def report(phase: SubtaskPhase, vertex: str, index: int, cause: FailureCause = FailureCause.FAULT) -> events.Reported:
    return events.Reported(SubtaskReport(subtask(vertex, index), phase, cause, "on purpose"))


def acknowledged(checkpoint_id: int, vertex: str, index: int) -> events.Acknowledged:
    state = source_state(vertex, index, (SplitState(f"f-{index}", 3, 9),)) if vertex == "read" else None
    return events.Acknowledged(ack(checkpoint_id, vertex, index, state=state))


@pytest.mark.parametrize("stranger", ["tm-b", "tm-c"])
@pytest.mark.parametrize("cause", [FailureCause.USER_ERROR, FailureCause.FAULT, FailureCause.STATE_UNREADABLE])
def test_a_failure_that_another_task_manager_reports_ends_nothing(stranger: str, cause: FailureCause) -> None:
    driver = Driver().run()
    give_report(driver, stranger, report(SubtaskPhase.SUBTASK_FAILED, "count", 0, cause))
    give_report(driver, stranger, report(SubtaskPhase.SUBTASK_CANCELED, "count", 0, cause))
    assert driver.state is JobState.RUNNING
    assert not driver.emitted(JobEventKind.ATTEMPT_FAILED)
    give_report(driver, "tm-a", report(SubtaskPhase.SUBTASK_FAILED, "count", 0, FailureCause.FAULT))
    assert driver.state is JobState.RESTARTING


def test_the_end_of_an_attempt_counts_only_where_it_runs() -> None:
    driver = Driver().run()
    give_report(driver, "tm-c", events.Gone("tm-c", AttemptGone(attempt())))
    assert driver.state is JobState.RUNNING
    give_report(driver, "tm-b", events.Gone("tm-b", AttemptGone(attempt())))
    assert driver.state is JobState.RESTARTING


def test_a_checkpoint_is_completed_only_by_the_task_managers_of_its_subtasks() -> None:
    driver = Driver().run()
    number = driver.trigger()
    for key in SUBTASKS:
        other = "tm-a" if PLACES[key] == "tm-b" else "tm-b"
        for stranger in (other, "tm-c"):
            assert not [item for item in give_report(driver, stranger, acknowledged(number, *key)) if _persists(item)]
    for key in SUBTASKS[:-1]:
        give_report(driver, PLACES[key], acknowledged(number, *key))
    assert not driver.of(effects.PersistCheckpoint)
    give_report(driver, PLACES[SUBTASKS[-1]], acknowledged(number, *SUBTASKS[-1]))
    assert driver.one(effects.PersistCheckpoint)


def test_an_acknowledgement_with_the_state_of_another_subtask_is_ignored() -> None:
    driver = Driver().run()
    number = driver.trigger()
    for key in SUBTASKS:
        subject = acknowledged(number, *key)
        if key == ("count", 1):
            assert subject.acknowledge.state is not None
            mixed = replace(subject.acknowledge, state=replace(subject.acknowledge.state, subtask=0))
            give_report(driver, "tm-b", events.Acknowledged(mixed))
            assert not driver.of(effects.PersistCheckpoint)
        give_report(driver, PLACES[key], subject)
    assert driver.one(effects.PersistCheckpoint)


def test_a_task_manager_cannot_decline_a_checkpoint_for_others() -> None:
    driver = Driver(word_count(checkpoints=CheckpointOptions(tolerable_failures=0))).run()
    number = driver.trigger()
    decline = events.Declined(DeclineCheckpoint(subtask("count", 0), number, "no room"))
    give_report(driver, "tm-b", decline)
    assert not driver.emitted(JobEventKind.CHECKPOINT_ABORTED)
    give_report(driver, "tm-a", decline)
    assert driver.emitted(JobEventKind.CHECKPOINT_ABORTED)


def test_a_task_manager_cannot_commit_for_others() -> None:
    """The result of a bounded job is written when every sink has shown the last checkpoint, and not before."""
    driver = Driver().run()
    for key in SUBTASKS:
        give_report(driver, PLACES[key], report(SubtaskPhase.SUBTASK_EXHAUSTED, *key))
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    for key in SUBTASKS:
        give_report(driver, PLACES[key], acknowledged(number, *key))
    driver.persisted(driver.one(effects.PersistCheckpoint))
    for key in SUBTASKS:
        give_report(driver, "tm-c", events.Committed(CheckpointCommitted(subtask(*key), number)))
    assert not driver.of(effects.PersistResult)
    for key in SUBTASKS:
        give_report(driver, PLACES[key], events.Committed(CheckpointCommitted(subtask(*key), number)))
    assert driver.one(effects.PersistResult)


def test_only_the_task_manager_of_a_subtask_reports_that_it_runs() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    for key in SUBTASKS:
        give_report(driver, "tm-c", report(SubtaskPhase.SUBTASK_RUNNING, *key))
    assert driver.state is JobState.DEPLOYING
    for key in SUBTASKS:
        give_report(driver, PLACES[key], report(SubtaskPhase.SUBTASK_RUNNING, *key))
    assert driver.state is JobState.RUNNING


def test_splits_first_records_and_counters_of_others_are_left_out() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    splits = (SplitState("file-0", 0, 9),)
    assert not give_report(driver, "tm-b", events.SplitsFound(SplitsDiscovered(attempt(), "read", splits, True)))
    error = SplitsDiscovered(attempt(), "read", (), True, "no such folder", FailureCause.USER_ERROR)
    give_report(driver, "tm-b", events.SplitsFound(error))
    assert driver.state is JobState.RUNNING
    assert give_report(driver, "tm-a", events.SplitsFound(SplitsDiscovered(attempt(), "read", splits, True)))

    give_report(driver, "tm-b", events.FirstRecordSeen(FirstRecord(subtask("count", 0), 5)))
    assert driver.emitted(JobEventKind.FIRST_RECORD) == []

    counted = tuple(SubtaskCounters(subtask(*key), (OperatorCounters("counts", 10, 1),)) for key in SUBTASKS)
    give_report(driver, "tm-a", events.CountersReported(counted))
    totals = {operator.operator_id: operator.records_in for operator in driver.master.status().operators}
    assert totals["counts"] == 2 * 10  # read-0 and count-0, which are there


def test_only_the_end_of_a_torn_down_attempt_counts() -> None:
    driver = Driver().run()
    driver.give(events.CancelRequested())
    for key in SUBTASKS:
        give_report(driver, PLACES[key], report(SubtaskPhase.SUBTASK_FAILED, *key))
    for name in ("tm-a", "tm-b"):
        assert not driver.of(effects.PersistResult)
        give_report(driver, name, events.Gone(name, AttemptGone(attempt())))
    assert driver.one(effects.PersistResult).result.outcome == "CANCELED"


def _persists(effect: effects.Effect) -> bool:
    return isinstance(effect, effects.PersistCheckpoint)


def test_reports_that_come_together_count_as_if_each_had_come_alone() -> None:
    driver = Driver().run()
    number = driver.trigger()
    mine = [key for key in SUBTASKS if PLACES[key] == "tm-a"]
    others = [key for key in SUBTASKS if PLACES[key] == "tm-b"]
    stranger = tuple(acknowledged(number, *key) for key in SUBTASKS)  # half of them are not its own
    driver.give(events.TaskManagerReports("tm-a", stranger))
    assert not driver.of(effects.PersistCheckpoint)
    driver.give(events.TaskManagerReports("tm-b", tuple(acknowledged(number, *key) for key in others)))
    persist = driver.one(effects.PersistCheckpoint)
    assert len(persist.metadata.subtasks) == len(mine) + len(others) == len(SUBTASKS)


def test_nothing_that_comes_together_with_a_failure_revives_its_attempt() -> None:
    driver = Driver().run()
    number = driver.trigger()
    failed = report(SubtaskPhase.SUBTASK_FAILED, "count", 0)
    running = report(SubtaskPhase.SUBTASK_EXHAUSTED, "read", 0)
    driver.give(events.TaskManagerReports("tm-a", (acknowledged(number, "read", 0), failed, running)))
    assert driver.state is JobState.RESTARTING
    assert len(driver.emitted(JobEventKind.ATTEMPT_FAILED)) == 1
