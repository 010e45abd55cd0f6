"""A job that ends for good: what its newest checkpoint holds is shown first, by every sink or with a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.last_commit import COMMIT_TIMEOUT_MS
from lockgate_proto.messages import (
    AttemptId,
    AttemptRecord,
    CancelAttempt,
    CheckpointCommitted,
    ConsoleSink,
    FailureCause,
    FixedDelayRestart,
    JobGraph,
    JobState,
    NotifyCheckpointComplete,
    RestartStrategy,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import RECORD, subtask, word_count

PART = "Checkpoint 1 may be only partially committed: "
BETWEEN = f"{PART}the job ended before another attempt could commit it."
ONCE = RestartStrategy(strategy=FixedDelayRestart(attempts=1, delay_ms=100))


def committed(driver: Driver, index: int, checkpoint_id: int = 1) -> None:
    who = subtask("count", index, driver.number)
    driver.give(events.Committed(CheckpointCommitted(subtask=who, checkpoint_id=checkpoint_id)))


def gone(driver: Driver) -> None:
    for name in ("tm-a", "tm-b"):
        driver.gone(name)


def waiting() -> Driver:
    """Cancelled when a checkpoint was complete and subtask 0 alone had shown it."""
    driver = Driver().run()
    driver.complete()
    committed(driver, 0)
    driver.give(events.CancelRequested())
    return driver


def test_a_cancelled_job_stops_when_every_sink_has_committed_the_newest_checkpoint() -> None:
    driver = waiting()
    assert driver.state is JobState.CANCELING
    assert not driver.sent(CancelAttempt)
    assert [(name, body.checkpoint_id) for name, body in driver.sent(NotifyCheckpointComplete)] == [("tm-b", 1)]
    assert driver.master.status().message == "its sinks show the output of its last checkpoint"
    committed(driver, 1)
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a", "tm-b"]
    gone(driver)
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, result.error) == ("CANCELED", "")


def test_a_checkpoint_that_is_being_written_at_the_cancel_is_announced_and_committed() -> None:
    driver = Driver().run()
    persist = driver.collect()
    driver.give(events.CancelRequested())
    assert not driver.sent(CancelAttempt)
    driver.persisted(persist)
    assert {name for name, _ in driver.sent(NotifyCheckpointComplete)} == {"tm-a", "tm-b"}
    for index in (0, 1):
        assert not driver.sent(CancelAttempt)
        committed(driver, index)
    assert driver.sent(CancelAttempt)


def test_a_checkpoint_that_could_not_be_written_holds_nothing_up() -> None:
    driver = Driver().run()
    driver.collect()
    driver.give(events.CancelRequested())
    driver.give(events.CheckpointPersistFailed(1, "the disk is full"))
    assert driver.sent(CancelAttempt)
    assert not driver.sent(NotifyCheckpointComplete)


def test_no_checkpoint_begins_while_the_last_one_is_committed() -> None:
    driver = waiting()
    driver.tick(COMMIT_TIMEOUT_MS - 1)
    assert not driver.of(effects.PersistCheckpointId)


def test_a_sink_that_never_shows_it_is_named_in_the_result() -> None:
    driver = waiting()
    driver.tick(COMMIT_TIMEOUT_MS)
    assert driver.sent(CancelAttempt)
    gone(driver)
    text = f"{PART}count-1 on tm-b had not committed it when the job ended."
    assert driver.one(effects.PersistResult).result.error == text
    assert driver.master.status().error == text


def test_a_checkpoint_in_doubt_is_not_awaited_forever() -> None:
    driver = Driver().run()
    persist = driver.collect()
    driver.give(events.CancelRequested())
    driver.tick(COMMIT_TIMEOUT_MS)
    assert driver.sent(CancelAttempt)
    gone(driver)
    assert not driver.of(effects.PersistResult)
    driver.persisted(persist)
    assert "A checkpoint was being written when the job ended" in driver.one(effects.PersistResult).result.error


def test_the_failed_sink_is_not_waited_for_and_the_others_are() -> None:
    driver = Driver().run()
    driver.complete()
    driver.fail(FailureCause.USER_ERROR, "no such column")
    assert not driver.sent(CancelAttempt)
    committed(driver, 1)
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a", "tm-b"]
    error = driver.one(effects.PersistResult).result.error
    assert error == f"count-0 on tm-a: no such column\n{PART}count-0 on tm-a had not committed it when the job ended."


@pytest.mark.parametrize("how", ["lost", "failed", "gone"])
def test_sinks_that_can_no_longer_commit_are_not_awaited(how: str) -> None:
    driver = waiting()
    if how == "lost":
        driver.give(events.TaskManagerLost("tm-b", "its stream broke"))
    elif how == "gone":
        driver.gone("tm-b")
    else:
        driver.report(SubtaskPhase.SUBTASK_FAILED, ("count", 1), cause=FailureCause.FAULT, error="broke")
    assert driver.sent(CancelAttempt)
    driver.tick(10_000)
    assert driver.result().error.startswith(f"{PART}count-1 on tm-b")


def test_a_restart_waits_for_nothing() -> None:
    driver = Driver().run()
    driver.complete()
    driver.fail()
    assert driver.state is JobState.RESTARTING
    assert driver.sent(CancelAttempt)


def printed() -> JobGraph:
    graph = word_count()
    read, count = graph.vertices
    shown = replace(count.operators[-1], kind=ConsoleSink())
    return replace(graph, vertices=(read, replace(count, operators=(*count.operators[:-1], shown))))


def test_printed_output_delays_no_cancellation() -> None:
    driver = Driver(printed()).run()
    driver.complete()
    driver.give(events.CancelRequested())
    assert driver.sent(CancelAttempt)


def test_printed_output_is_never_reported_missing() -> None:
    driver = Driver(printed()).run()
    driver.complete()
    persist = driver.collect()
    driver.give(events.CancelRequested())
    gone(driver)
    driver.persisted(persist)
    assert driver.one(effects.PersistResult).result.error == ""
    between = Driver(printed()).run()
    between.complete()
    between.fail()
    between.give(events.CancelRequested())
    assert "committed" not in between.one(effects.PersistResult).result.error


def test_a_job_cancelled_during_a_restore_shows_the_restored_snapshot() -> None:
    first = Driver().run()
    checkpoint, metadata = first.complete()
    driver = Driver(token=8)
    request = driver.recover(AttemptRecord(attempt=1), (checkpoint,), metadata, 2).request
    driver.deploy(request)
    driver.give(events.CancelRequested())
    assert not driver.sent(CancelAttempt)
    for index in (0, 1):
        assert not driver.sent(CancelAttempt)
        driver.report(SubtaskPhase.SUBTASK_RUNNING, ("count", index))
    assert driver.sent(CancelAttempt)


# attempts that restore what was never shown


def redeploy(driver: Driver) -> None:
    """From RESTARTING to an attempt that is being restored."""
    driver.tick(10_000)
    driver.deploy(driver.one(effects.RequestSlots).request)


def restored(*, is_shown: bool) -> Driver:
    """The second attempt, the last that the job may have, is being restored from checkpoint 1."""
    driver = Driver(word_count(restart=ONCE)).run()
    driver.complete()
    if is_shown:
        driver.commit(1)
    driver.fail(error="the database is down")
    redeploy(driver)
    return driver


def test_a_job_that_cannot_commit_its_restored_output_reports_that_and_does_not_wait() -> None:
    driver = restored(is_shown=False)
    driver.fail(error="the database is down")
    assert driver.sent(CancelAttempt)
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, [checkpoint.checkpoint_id for checkpoint in result.retained]) == ("FAILED", [1])
    missing = f"{PART}count-0 on tm-a, count-1 on tm-b had not committed it when the job ended."
    assert result.error.splitlines()[-1] == missing


def test_a_sink_that_was_restored_is_not_named() -> None:
    driver = restored(is_shown=False)
    driver.report(SubtaskPhase.SUBTASK_RUNNING, ("count", 1))
    driver.fail(error="the database is down")
    missing = f"{PART}count-0 on tm-a had not committed it when the job ended."
    assert driver.one(effects.PersistResult).result.error.splitlines()[-1] == missing


@pytest.mark.parametrize("outcome", ["FAILED", "CANCELED"])
def test_a_checkpoint_committed_by_an_earlier_attempt_is_not_reported(outcome: str) -> None:
    driver = restored(is_shown=True)
    if outcome == "FAILED":
        driver.fail(error="no slot of the database is free")
    else:
        driver.give(events.CancelRequested())
        assert driver.sent(CancelAttempt)
        gone(driver)
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, PART in result.error) == (outcome, False)


def test_a_checkpoint_restored_everywhere_by_an_earlier_attempt_is_not_reported() -> None:
    driver = Driver().run()
    driver.complete()
    driver.fail()
    redeploy(driver)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    driver.fail()
    redeploy(driver)
    driver.fail(FailureCause.USER_ERROR, "no such column")
    assert driver.one(effects.PersistResult).result.error == "count-0 on tm-a: no such column"


@pytest.mark.parametrize("state", [JobState.RESTARTING, JobState.WAITING_FOR_SLOTS, JobState.DEPLOYING])
@pytest.mark.parametrize("is_shown", [False, True])
def test_a_cancel_between_two_attempts_reports_uncommitted_output(state: JobState, is_shown: bool) -> None:
    driver = Driver().run()
    driver.complete()
    if is_shown:
        driver.commit(1)
    driver.fail()
    if state is not JobState.RESTARTING:
        driver.tick(10_000)
    if state is JobState.DEPLOYING:
        driver.offer(driver.one(effects.RequestSlots).request)
    assert driver.state is state
    driver.give(events.CancelRequested())
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, BETWEEN in result.error) == ("CANCELED", not is_shown)
    assert driver.master.status().error.endswith(BETWEEN) is not is_shown


def test_a_checkpoint_that_turns_out_complete_after_its_attempt_is_missed_too() -> None:
    driver = Driver().run()
    driver.complete()
    driver.commit(1)
    persist = driver.collect()
    driver.fail()
    driver.give(events.CancelRequested())
    assert not driver.of(effects.PersistResult)
    driver.persisted(persist)
    assert driver.one(effects.PersistResult).result.error.endswith(BETWEEN.replace("Checkpoint 1", "Checkpoint 2"))


def test_a_new_leader_that_continues_a_cancel_does_not_know_the_committed_output() -> None:
    checkpoint, metadata = Driver().run().complete()
    driver = Driver(record=replace(RECORD, cancel_requested=True), token=8)
    driver.give(events.Recovered(AttemptRecord(attempt=1), (checkpoint,), metadata, 2))
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, result.error) == ("CANCELED", BETWEEN)


def test_a_job_that_has_no_checkpoint_misses_nothing() -> None:
    driver = Driver(record=replace(RECORD, cancel_requested=True), token=8)
    driver.give(events.Recovered(AttemptRecord(attempt=1), (), None, 1))
    assert driver.one(effects.PersistResult).result.error == ""


def test_a_job_that_has_never_run_misses_nothing_of_the_savepoint_that_it_was_to_start_from() -> None:
    _, metadata = Driver().run().complete()
    driver = Driver(record=replace(RECORD, run_id="run-2", restore_from="/old/chk-1/_metadata"))
    driver.recover(metadata=metadata)
    driver.give(events.CancelRequested())
    assert driver.one(effects.PersistResult).result.error == ""


@pytest.mark.parametrize("cause", [FailureCause.USER_ERROR, FailureCause.STATE_UNREADABLE, FailureCause.FAULT])
def test_a_job_that_cannot_start_from_the_savepoint_of_another_says_nothing_of_what_that_one_has_shown(
    cause: FailureCause,
) -> None:
    _, metadata = Driver().run().complete()
    record = replace(RECORD, run_id="run-2", restore_from="/old/chk-1/_metadata")
    driver = Driver(word_count(restart=ONCE), record=record)
    driver.deploy(driver.recover(metadata=metadata).request)
    for _ in range(2 if cause is FailureCause.FAULT else 1):
        attempt = AttemptId("words", "run-2", driver.number)
        report = SubtaskReport(SubtaskId(attempt, "count", 0), SubtaskPhase.SUBTASK_FAILED, cause, "unfit state")
        driver.give(events.Reported(report))
        driver.tick(100)
        if driver.of(effects.RequestSlots):
            driver.deploy(driver.one(effects.RequestSlots).request)
    driver.tick(COMMIT_TIMEOUT_MS)
    error = driver.result().error
    assert "unfit state" in error
    assert "committed" not in error


def test_nor_does_one_that_is_cancelled_between_its_attempts() -> None:
    _, metadata = Driver().run().complete()
    record = replace(RECORD, run_id="run-2", restore_from="/old/chk-1/_metadata")
    driver = Driver(word_count(restart=ONCE), record=record)
    driver.deploy(driver.recover(metadata=metadata).request)
    driver.give(events.TaskManagerLost("tm-a", "it is gone"))
    driver.give(events.CancelRequested())
    assert driver.result().error == ""
