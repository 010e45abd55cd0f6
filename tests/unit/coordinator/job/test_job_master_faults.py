"""Failure, restart, cancel, savepoint: what a job does when something goes wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_proto.messages import (
    AttemptRecord,
    CancelAttempt,
    CheckpointMetadata,
    CheckpointOptions,
    CompletedCheckpoint,
    DeclineCheckpoint,
    Deploy,
    FailureCause,
    FixedDelayRestart,
    GeneratorSource,
    JobEventKind,
    JobState,
    NoRestart,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RestartStrategy,
    SubtaskPhase,
    TriggerCheckpoint,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import JOB, RECORD, SUBTASKS, ack, subtask, word_count

KEEP = CheckpointOptions(retain_after_end=True)
NEVER = RestartStrategy(strategy=NoRestart())


def restart(driver: Driver) -> Driver:
    """From RESTARTING to RUNNING again."""
    driver.tick(10_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert driver.state is JobState.RUNNING
    return driver


def snapshot(driver: Driver | None = None) -> tuple[CompletedCheckpoint, CheckpointMetadata]:
    """A completed checkpoint of the word count."""
    return (driver or Driver().run()).complete()


# restart


def test_a_fault_cancels_the_attempt_everywhere_and_waits_before_the_next() -> None:
    driver = Driver().run()
    driver.fail(error="Spark died")
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a", "tm-b"]
    assert driver.state is JobState.RESTARTING
    assert driver.master.status().error == "count-0 on tm-a: Spark died"
    assert not driver.of(effects.RequestSlots)
    wake = driver.one(effects.WakeAt).at_ms
    assert wake - driver.now >= 50
    driver.tick(wake - driver.now)
    assert driver.one(effects.RequestSlots).preferred == ("tm-a", "tm-b")


def test_a_broken_channel_waits_until_the_loss_of_the_task_manager_can_be_known() -> None:
    driver = Driver().run()
    driver.fail(FailureCause.PEER_LOST)
    assert driver.one(effects.WakeAt).at_ms - driver.now >= 50
    driver.give(events.TaskManagerLost("tm-b", "its connection broke"), after_ms=5)
    assert driver.state is JobState.RESTARTING
    driver.tick(100)
    assert driver.one(effects.RequestSlots).preferred == ("tm-a", "")


def test_a_lost_task_manager_gets_no_cancel() -> None:
    driver = Driver().run()
    driver.give(events.TaskManagerLost("tm-b", "its connection broke"))
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a"]
    assert driver.emitted(JobEventKind.TASK_MANAGER_LOST)
    assert driver.state is JobState.RESTARTING


def test_a_task_manager_that_runs_nothing_of_the_job_may_go() -> None:
    driver = Driver().run()
    driver.give(events.TaskManagerLost("tm-z", "its connection broke"))
    assert driver.state is JobState.RUNNING


def test_several_subtasks_that_fail_together_are_one_failure() -> None:
    driver = Driver().run()
    driver.fail()
    driver.fail()
    driver.give(events.TaskManagerLost("tm-a", "gone"))
    assert len(driver.emitted(JobEventKind.ATTEMPT_FAILED)) == 1


def test_the_next_attempt_has_the_next_number_and_counts_as_a_restart() -> None:
    driver = Driver().run()
    driver.fail()
    restart(driver)
    status = driver.master.status()
    assert (status.attempt, status.restarts) == (2, 1)


def test_a_restart_restores_the_newest_checkpoint_on_the_right_task_managers() -> None:
    driver = Driver().run()
    _, metadata = snapshot(driver)
    driver.fail()
    driver.tick(10_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    deploys = dict(driver.sent(Deploy))
    assert {deploy.restored_checkpoint_id for deploy in deploys.values()} == {metadata.checkpoint_id}
    assert {(subtask_state.vertex_id, subtask_state.subtask) for subtask_state in deploys["tm-b"].restore} == {
        ("read", 1),
        ("count", 1),
    }


def test_a_subtask_cancelled_by_its_task_manager_restarts_the_attempt() -> None:
    driver = Driver().run()
    driver.report(SubtaskPhase.SUBTASK_CANCELED, ("read", 0))
    assert driver.state is JobState.RESTARTING


def test_an_attempt_that_ends_unexpectedly_is_restarted() -> None:
    driver = Driver().run()
    driver.gone("tm-a")
    assert driver.state is JobState.RESTARTING


def test_the_end_of_an_older_attempt_is_not_a_failure() -> None:
    driver = Driver().run()
    driver.gone("tm-a", number=9)
    assert driver.state is JobState.RUNNING


def test_a_task_manager_lost_while_the_attempt_is_persisted_is_not_deployed_to() -> None:
    driver = Driver()
    driver.offer(driver.recover().request)
    driver.give(events.TaskManagerLost("tm-b", "gone"))
    assert driver.state is JobState.RESTARTING
    driver.give(events.AttemptPersisted(1))
    assert not driver.sent(Deploy)


def test_a_late_answer_for_an_abandoned_attempt_does_not_deploy_the_next_one() -> None:
    driver = Driver()
    driver.offer(driver.recover().request)
    driver.give(events.TaskManagerLost("tm-b", "gone"))
    driver.tick(10_000)
    assert driver.offer(driver.one(effects.RequestSlots).request).record.attempt == 2
    driver.give(events.AttemptPersisted(1))
    assert not driver.sent(Deploy)
    driver.give(events.AttemptPersisted(2))
    assert driver.sent(Deploy)


def test_failing_forever_backs_off() -> None:
    driver = Driver().run()
    pauses = []
    for _ in range(12):
        driver.fail()
        pauses.append(driver.one(effects.WakeAt).at_ms - driver.now)
        restart(driver)
    assert pauses[0] <= 60
    assert pauses[-1] >= 8_000


def test_restarts_that_are_used_up_fail_the_job_with_the_cause() -> None:
    driver = Driver(word_count(restart=RestartStrategy(strategy=FixedDelayRestart(attempts=1, delay_ms=100)))).run()
    driver.fail()
    restart(driver)
    driver.fail(error="again")
    result = driver.result()
    assert result.outcome == "FAILED"
    assert "again" in result.error
    assert "allows 1 restart, and none is left" in result.error


def test_no_restart_fails_at_once() -> None:
    driver = Driver(word_count(restart=NEVER)).run()
    driver.fail()
    assert driver.one(effects.PersistResult).result.outcome == "FAILED"
    driver.give(events.ResultPersisted())
    assert driver.state is JobState.FAILED


def test_a_user_error_fails_the_job_at_once_with_its_message() -> None:
    driver = Driver().run()
    snapshot(driver)
    driver.commit(1)
    driver.fail(FailureCause.USER_ERROR, "column 'wrd' does not exist")
    result = driver.one(effects.PersistResult).result
    assert result.error == "count-0 on tm-a: column 'wrd' does not exist"
    assert [checkpoint.checkpoint_id for checkpoint in result.retained] == [1]
    assert (result.failure.cause, result.failure.vertex_id) == (FailureCause.USER_ERROR, "count")
    assert len(driver.sent(CancelAttempt)) == 2


def test_unreadable_state_fails_the_job_and_keeps_every_checkpoint() -> None:
    driver = Driver().run()
    snapshot(driver)
    driver.commit(1)
    driver.fail(FailureCause.STATE_UNREADABLE, "chk-1/a is corrupt")
    assert [checkpoint.checkpoint_id for checkpoint in driver.one(effects.PersistResult).result.retained] == [1]


# checkpoints and failure


def test_a_failure_aborts_the_pending_checkpoint_without_notifying_the_failed_attempt() -> None:
    driver = Driver().run()
    number = driver.trigger()
    driver.fail()
    assert not driver.sent(NotifyCheckpointAborted)
    assert driver.one(effects.DiscardPending).checkpoint_id == number
    assert driver.emitted(JobEventKind.CHECKPOINT_ABORTED)


def test_acks_of_the_failed_attempt_complete_nothing() -> None:
    driver = Driver().run()
    number = driver.trigger()
    driver.fail()
    for key in SUBTASKS:
        driver.give(events.Acknowledged(ack(number, *key, 1)))
        assert not driver.of(effects.PersistCheckpoint)


def test_a_restart_waits_for_the_outcome_of_a_checkpoint_that_is_being_written() -> None:
    driver = Driver().run()
    persist = driver.collect()
    driver.fail()
    driver.tick(60_000)
    assert driver.state is JobState.RESTARTING
    assert not driver.of(effects.RequestSlots)
    driver.persisted(persist)
    assert not driver.sent(NotifyCheckpointComplete)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert driver.sent(Deploy)[0][1].restored_checkpoint_id == 1


def test_a_checkpoint_that_turns_out_not_to_be_written_is_not_restored() -> None:
    driver = Driver().run()
    snapshot(driver)
    driver.collect()
    driver.fail()
    driver.tick(60_000)
    driver.give(events.CheckpointPersistFailed(2, "the disk is full"))
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert driver.sent(Deploy)[0][1].restored_checkpoint_id == 1


def test_a_checkpoint_that_cannot_be_written_is_aborted_and_the_attempt_is_notified() -> None:
    driver = Driver(word_count(checkpoints=CheckpointOptions(tolerable_failures=1))).run()
    number = driver.collect().metadata.checkpoint_id
    driver.give(events.CheckpointPersistFailed(number, "the disk is full"))
    aborted = driver.sent(NotifyCheckpointAborted)
    assert [name for name, _ in aborted] == ["tm-a", "tm-b"]
    assert aborted[0][1].reason == "the disk is full"
    assert driver.state is JobState.RUNNING


def test_too_many_failed_checkpoints_restart_the_job() -> None:
    driver = Driver(word_count(checkpoints=CheckpointOptions(tolerable_failures=1))).run()
    for _ in range(2):
        number = driver.trigger()
        decline = DeclineCheckpoint(subtask=subtask("count", 1), checkpoint_id=number, reason="too large")
        driver.give(events.Declined(decline))
    assert driver.state is JobState.RESTARTING
    assert "too large" in driver.master.status().error


# records that cannot be written


def test_an_attempt_record_that_was_not_written_is_written_again() -> None:
    driver = Driver()
    first = driver.offer(driver.recover().request)
    driver.give(events.PersistFailed(events.PersistKind.ATTEMPT, "not connected"))
    assert not driver.of(effects.PersistAttempt)
    driver.tick(1_000)
    assert driver.one(effects.PersistAttempt) == first


def test_a_failure_to_write_an_abandoned_attempt_does_not_write_the_next_one_twice() -> None:
    driver = Driver()
    driver.offer(driver.recover().request)
    driver.give(events.TaskManagerLost("tm-b", "gone"))
    driver.tick(10_000)
    driver.offer(driver.one(effects.RequestSlots).request)
    driver.give(events.PersistFailed(events.PersistKind.ATTEMPT, "not connected", attempt=1))
    driver.tick(5_000)
    assert not driver.of(effects.PersistAttempt)


def test_a_result_that_was_not_written_is_written_again() -> None:
    driver = Driver(word_count(restart=NEVER)).run()
    driver.fail()
    driver.give(events.PersistFailed(events.PersistKind.RESULT, "not connected"))
    assert not driver.master.status().ended_unix_ms
    driver.tick(1_000)
    assert driver.of(effects.PersistResult)


# ZooKeeper suspended


def test_suspended_starts_no_checkpoint_and_no_attempt_but_lets_the_job_run() -> None:
    driver = Driver().run()
    driver.give(events.Suspended())
    driver.tick(5_000)
    assert not driver.of(effects.PersistCheckpointId)
    assert driver.state is JobState.RUNNING
    assert "ZooKeeper is not reachable: " in driver.master.status().message
    driver.give(events.Suspended("it speaks TLS only"))  # again, now that the reason is known
    assert "ZooKeeper is not reachable (it speaks TLS only): " in driver.master.status().message
    driver.give(events.Resumed())
    assert driver.of(effects.PersistCheckpointId)
    assert not driver.master.status().message


def test_suspended_holds_back_the_attempt_record() -> None:
    driver = Driver().run()
    driver.give(events.Suspended())
    driver.give(events.TaskManagerLost("tm-b", "gone"))
    driver.tick(10_000)
    driver.give(events.SlotsOffered(JOB, driver.one(effects.RequestSlots).request, (SlotOffer("tm-a", "a:1"),) * 2))
    assert not driver.of(effects.PersistAttempt)
    driver.give(events.Resumed())
    assert driver.one(effects.PersistAttempt).record.attempt == 2


def test_suspended_before_recovery_counts_too() -> None:
    driver = Driver()
    driver.give(events.Suspended())
    driver.recover()
    driver.give(events.SlotsOffered(JOB, 1, (SlotOffer("tm-a", "a:1"),) * 2))
    assert not driver.of(effects.PersistAttempt)


def test_a_checkpoint_collected_while_suspended_is_written_on_resume() -> None:
    driver = Driver(word_count(GeneratorSource())).run()
    number = driver.trigger()
    driver.give(events.Suspended())
    driver.acknowledge(number)
    assert not driver.of(effects.PersistCheckpoint)
    driver.tick(100_000)
    driver.give(events.Resumed())
    assert driver.one(effects.PersistCheckpoint).metadata.checkpoint_id == number


# cancel


def test_a_cancel_that_was_marked_is_carried_out_by_the_next_leader() -> None:
    driver = Driver(record=replace(RECORD, cancel_requested=True))
    driver.give(events.Recovered(AttemptRecord(attempt=2, task_manager_ids=("tm-a", "tm-b")), (), None, 3))
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a", "tm-b"]
    assert not driver.of(effects.RequestSlots)
    assert driver.result().outcome == "CANCELED"


def test_cancel_stops_the_subtasks_before_the_result_is_written() -> None:
    driver = Driver().run()
    driver.give(events.CancelRequested())
    assert driver.state is JobState.CANCELING
    assert len(driver.sent(CancelAttempt)) == 2
    assert not driver.of(effects.PersistResult)
    driver.gone("tm-a")
    driver.gone("tm-b")
    assert driver.one(effects.PersistResult).result.outcome == "CANCELED"
    driver.give(events.ResultPersisted())
    assert driver.state is JobState.CANCELED


def test_cancel_does_not_wait_for_a_task_manager_that_died() -> None:
    driver = Driver().run()
    driver.give(events.CancelRequested())
    driver.gone("tm-a")
    driver.give(events.TaskManagerLost("tm-b", "gone"))
    assert driver.of(effects.PersistResult)


def test_cancel_does_not_wait_forever() -> None:
    driver = Driver().run()
    driver.give(events.CancelRequested())
    driver.tick(driver.one(effects.WakeAt).at_ms - driver.now)
    assert driver.of(effects.PersistResult)


def test_cancel_twice_is_one_cancel() -> None:
    driver = Driver().run()
    driver.give(events.CancelRequested())
    assert not driver.give(events.CancelRequested())


@pytest.mark.parametrize("keep", [False, True])
def test_a_cancelled_job_keeps_its_checkpoint_when_asked(keep: bool) -> None:
    driver = Driver(word_count(checkpoints=KEEP if keep else None)).run()
    snapshot(driver)
    driver.commit(1)
    driver.give(events.CancelRequested())
    driver.tick(10_000)
    driver.give(events.ResultPersisted())
    assert len(driver.one(effects.CleanUp).retained) == (1 if keep else 0)


def test_cancel_waits_for_a_checkpoint_that_is_being_written() -> None:
    driver = Driver(word_count(checkpoints=KEEP)).run()
    persist = driver.collect()
    driver.give(events.CancelRequested())
    driver.tick(10_000)
    driver.tick(10_000)
    assert not driver.of(effects.PersistResult)
    driver.persisted(persist)
    assert [checkpoint.checkpoint_id for checkpoint in driver.one(effects.PersistResult).result.retained] == [1]


def test_cancel_while_waiting_for_slots_ends_at_once() -> None:
    driver = Driver()
    request = driver.recover().request
    driver.give(events.CancelRequested())
    assert driver.of(effects.PersistResult)
    assert not driver.give(events.SlotsOffered(JOB, request, (SlotOffer("tm-a", "a:1"),) * 2))
    driver.give(events.ResultPersisted())
    assert driver.of(effects.ReleaseSlots)


def test_cancel_by_a_new_leader_also_stops_the_old_attempt() -> None:
    driver = Driver()
    driver.recover(AttemptRecord(attempt=3, task_manager_ids=("tm-a", "tm-a", "tm-c")))
    driver.give(events.CancelRequested())
    assert [(name, body.attempt.attempt) for name, body in driver.sent(CancelAttempt) if body.attempt] == [
        ("tm-a", 3),
        ("tm-c", 3),
    ]


def test_cancel_before_the_records_are_read_is_remembered() -> None:
    driver = Driver()
    assert not driver.give(events.CancelRequested())
    driver.give(events.Recovered(None, (), None, 1))
    assert driver.one(effects.PersistResult).result.outcome == "CANCELED"


def test_a_job_whose_snapshot_cannot_be_read_can_be_cancelled_and_keeps_it() -> None:
    checkpoint, _ = snapshot()
    driver = Driver()
    driver.give(events.RecoveryFailed("no route to storage", True, None, (checkpoint,), 2))
    driver.give(events.CancelRequested())
    driver.give(events.RecoveryFailed("no route to storage", True, None, (checkpoint,), 2))
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, len(result.retained)) == ("CANCELED", 1)


# savepoints


def test_a_savepoint_is_answered_when_it_is_complete_and_never_subsumed() -> None:
    driver = Driver().run()
    driver.give(events.SavepointRequested("s"))
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    assert driver.sent(TriggerCheckpoint)
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    answer = driver.one(effects.AnswerSavepoint)
    assert answer.savepoint is not None
    assert (answer.request_id, answer.savepoint.checkpoint_id) == ("s", number)
    for _ in range(3):
        driver.complete()
    assert [checkpoint.checkpoint_id for checkpoint in driver.master.checkpoints().all()] == [number + 3, number]


def test_a_savepoint_requested_between_two_attempts_is_taken_in_the_next() -> None:
    driver = Driver().run()
    driver.complete()
    driver.fail()
    assert driver.state is JobState.RESTARTING
    driver.give(events.SavepointRequested("s", 60_000))
    assert not driver.of(effects.AnswerSavepoint)
    driver.tick(1_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    for key in SUBTASKS:
        driver.report(SubtaskPhase.SUBTASK_RUNNING, key)
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    answer = driver.one(effects.AnswerSavepoint)
    assert answer.savepoint is not None
    assert (answer.request_id, answer.savepoint.checkpoint_id) == ("s", number)


def test_a_savepoint_that_waits_for_the_next_attempt_is_answered_when_the_job_ends() -> None:
    driver = Driver().run()
    driver.fail()
    driver.give(events.SavepointRequested("s", 60_000))
    driver.give(events.CancelRequested())
    assert driver.one(effects.AnswerSavepoint).error == "No savepoint: the job has ended: canceled."


@pytest.mark.parametrize("when", ["before", "ended"])
def test_a_savepoint_of_a_job_that_does_not_run_is_refused_with_a_sentence(when: str) -> None:
    driver = Driver()
    if when == "ended":
        driver.run()
        driver.fail()
        driver.give(events.CancelRequested())
        driver.give(events.ResultPersisted())
    driver.give(events.SavepointRequested("s"))
    answer = driver.one(effects.AnswerSavepoint)
    assert answer.savepoint is None
    assert answer.error


def test_recovery_prefers_a_savepoint_when_it_is_the_newest() -> None:
    driver = Driver().run()
    driver.complete()
    driver.give(events.SavepointRequested("s"))
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.fail()
    driver.tick(10_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert driver.sent(Deploy)[0][1].restored_checkpoint_id == number
