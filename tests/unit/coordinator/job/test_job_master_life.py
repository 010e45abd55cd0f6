"""A job's life without faults: recovery, deployment, checkpoints, the end."""

from __future__ import annotations

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_proto.messages import (
    AssignSplits,
    AttemptRecord,
    CancelAttempt,
    CheckpointCommitted,
    CheckpointKind,
    CheckpointOptions,
    Deploy,
    DiscoverSplits,
    FailureCause,
    FirstRecord,
    JobEventKind,
    JobState,
    NotifyCheckpointComplete,
    OperatorCounters,
    SplitsDiscovered,
    SplitState,
    SubtaskCounters,
    SubtaskLoad,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
)

from tests.layouts import places
from tests.unit.coordinator.driver import SLOTS, Driver
from tests.unit.coordinator.jobs import JOB, attempt, subtask, word_count

RUNNING, EXHAUSTED = SubtaskPhase.SUBTASK_RUNNING, SubtaskPhase.SUBTASK_EXHAUSTED


def test_a_new_job_asks_for_one_slot_per_parallel_instance() -> None:
    request = Driver().recover()
    assert (request.count, request.preferred) == (2, ())


def test_a_new_leader_prefers_the_task_managers_of_the_last_attempt_and_waits_for_them() -> None:
    request = Driver().recover(AttemptRecord(attempt=4, task_manager_ids=("tm-a", "tm-b")))
    assert request.preferred == ("tm-a", "tm-b")
    assert request.grace_ms == 500


def test_waiting_for_slots_names_the_missing_number() -> None:
    driver = Driver()
    request = driver.recover().request
    driver.give(events.SlotsMissing(JOB, request, 1, 1))
    assert driver.state is JobState.WAITING_FOR_SLOTS
    assert driver.master.status().message == "needs 2 slots, 1 free in 1 task manager"


def test_the_attempt_is_persisted_before_anything_is_deployed() -> None:
    driver = Driver()
    record = driver.offer(driver.recover().request).record
    assert (record.attempt, record.task_manager_ids, record.token, record.restarts) == (1, ("tm-a", "tm-b"), 7, 0)
    assert not driver.of(effects.Send)
    driver.give(events.AttemptPersisted(1))
    assert [name for name, _ in driver.sent(Deploy)] == ["tm-a", "tm-b"]


def test_one_deploy_message_per_task_manager_carries_the_layout() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    deploys = dict(driver.sent(Deploy))
    assert deploys["tm-a"].layout is deploys["tm-b"].layout, "it is encoded once"
    assert len(places(deploys["tm-a"])) == 4
    assert deploys["tm-a"].restored_checkpoint_id == 0
    assert deploys["tm-a"].attempt == attempt(1)
    assert places(deploys["tm-a"])["count", 1] == "tm-b"


def test_all_subtasks_on_one_task_manager_get_one_message() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request, (SlotOffer("tm-a", "a:1"),) * 2)
    assert [name for name, _ in driver.sent(Deploy)] == ["tm-a"]


def test_an_offer_for_an_older_request_is_ignored() -> None:
    driver = Driver()
    request = driver.recover().request
    assert not driver.give(events.SlotsOffered(JOB, request - 1, SLOTS))
    assert driver.state is JobState.WAITING_FOR_SLOTS


def test_too_few_slots_are_not_taken() -> None:
    driver = Driver()
    assert not driver.give(events.SlotsOffered(JOB, driver.recover().request, SLOTS[:1]))


def test_an_answer_for_another_attempt_deploys_nothing() -> None:
    driver = Driver()
    driver.offer(driver.recover().request)
    assert not driver.give(events.AttemptPersisted(2))


def test_subtasks_that_are_not_deployed_are_not_reported_as_starting() -> None:
    driver = Driver()
    driver.offer(driver.recover().request)
    assert driver.master.status().message == "its attempt record is being written"
    driver.give(events.PersistFailed(events.PersistKind.ATTEMPT, "no answer", 1))
    assert "could not be written" in driver.master.status().message


def test_a_repeated_answer_does_not_deploy_twice() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    driver.give(events.AttemptPersisted(1))
    assert not driver.sent(Deploy)


def test_running_only_when_every_subtask_runs() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    for key in (("read", 0), ("read", 1), ("count", 0), ("count", 0)):
        driver.report(RUNNING, key)
        assert driver.state is JobState.DEPLOYING
    assert driver.master.status().message == "waiting for count-1 to start"
    driver.report(RUNNING, ("count", 1))
    assert driver.state is JobState.RUNNING
    assert len(driver.emitted(JobEventKind.ATTEMPT_DEPLOYED)) == 1


def test_reports_of_another_attempt_are_ignored() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    for key in (("read", 0), ("read", 1), ("count", 0), ("count", 1)):
        driver.report(RUNNING, key, number=9)
    assert driver.state is JobState.DEPLOYING


def test_the_first_checkpoint_comes_one_interval_after_running() -> None:
    driver = Driver().run()
    assert driver.of(effects.WakeAt)[-1].at_ms == driver.now + 1_000
    assert not driver.tick(999)[:-1]
    assert driver.tick(1)[0] == effects.PersistCheckpointId(1)


def test_only_task_managers_with_sources_are_triggered() -> None:
    driver = Driver().run()
    driver.trigger()
    triggers = driver.sent(TriggerCheckpoint)
    assert [name for name, _ in triggers] == ["tm-a", "tm-b"]
    assert (triggers[0][1].checkpoint_id, triggers[0][1].kind) == (1, CheckpointKind.CHECKPOINT)
    assert triggers[0][1].triggered_unix_ms == driver.now + 1_000_000


def test_the_checkpoint_id_is_durable_before_it_is_used() -> None:
    driver = Driver().run()
    driver.tick(1_000)
    assert not driver.sent(TriggerCheckpoint)


def test_a_checkpoint_is_persisted_before_it_is_announced() -> None:
    driver = Driver().run()
    persist = driver.collect()
    assert not driver.sent(NotifyCheckpointComplete)
    driver.persisted(persist)
    assert [name for name, _ in driver.sent(NotifyCheckpointComplete)] == ["tm-a", "tm-b"]
    assert driver.master.status().last_checkpoint is not None
    assert driver.master.status().checkpoints_completed == 1
    assert driver.emitted(JobEventKind.CHECKPOINT_COMPLETED)


def test_the_metadata_is_sufficient_for_a_restore() -> None:
    persist = Driver().run().collect()
    metadata, record = persist.metadata, persist.record
    assert {(subtask.vertex_id, subtask.subtask) for subtask in metadata.subtasks} == {
        ("read", 0),
        ("read", 1),
        ("count", 0),
        ("count", 1),
    }
    assert (metadata.token, metadata.attempt, metadata.format_version) == (7, 1, 1)
    assert [shape.vertex_id for shape in metadata.vertices] == ["read", "count"]
    assert record.pointer == "/storage/default/words/run-1/chk-1/_metadata"
    assert record.longest_sync_us == 10


def test_checkpoint_listing_has_no_metadata() -> None:
    driver = Driver().run()
    driver.complete()
    assert [checkpoint.metadata for checkpoint in driver.master.checkpoints().all()] == [b""]


def test_the_older_checkpoint_is_discarded_after_the_newer_one_is_complete() -> None:
    driver = Driver().run()
    driver.complete()
    assert not driver.of(effects.DiscardCheckpoint)
    driver.complete()
    kinds = [type(effect) for effect in driver.last]
    assert driver.one(effects.DiscardCheckpoint).checkpoint.checkpoint_id == 1
    assert kinds.index(effects.Send) < kinds.index(effects.DiscardCheckpoint)


def test_splits_are_discovered_at_subtask_0_and_assigned_when_subtasks_run() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    assert [name for name, _ in driver.sent(DiscoverSplits)] == ["tm-a"]
    splits = tuple(SplitState(split=name, offset=0, end=end) for name, end in (("x", 5), ("y", 9), ("z", 3)))
    driver.give(events.SplitsFound(SplitsDiscovered(attempt=attempt(1), vertex_id="read", splits=splits)))
    assert not driver.sent(AssignSplits)
    driver.report(RUNNING, ("read", 1))
    ((name, assigned),) = driver.sent(AssignSplits)
    assert name == "tm-b"
    assert [split.split for split in assigned.splits] == ["x", "z"]
    assert assigned.complete


def test_splits_of_an_older_attempt_are_ignored() -> None:
    driver = Driver().run()
    split = SplitState(split="x", offset=0, end=5)
    driver.give(events.SplitsFound(SplitsDiscovered(attempt=attempt(9), vertex_id="read", splits=(split,))))
    assert not driver.sent(AssignSplits)


def test_a_source_that_cannot_be_listed_fails_the_job() -> None:
    driver = Driver().run()
    driver.give(events.SplitsFound(SplitsDiscovered(attempt=attempt(1), vertex_id="read", error="/in is not there")))
    assert driver.result().outcome == "FAILED"
    assert driver.result().error == "source read: /in is not there"


def test_the_first_record_is_reported_once_per_attempt() -> None:
    driver = Driver().run()
    for _ in range(2):
        driver.give(events.FirstRecordSeen(FirstRecord(subtask=subtask("count", 0), unix_us=77)))
    first = [
        emit.event
        for emit in driver.all
        if isinstance(emit, effects.Emit) and emit.event.kind is JobEventKind.FIRST_RECORD
    ]
    assert [event.unix_us for event in first] == [77]


def test_a_first_record_before_every_subtask_runs_is_reported_behind_that() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    driver.give(events.FirstRecordSeen(FirstRecord(subtask=subtask("count", 0), unix_us=77)))
    assert not driver.emitted(JobEventKind.FIRST_RECORD)
    driver.all_report(RUNNING)
    kinds = [emit.event.kind for emit in driver.all if isinstance(emit, effects.Emit)]
    assert kinds[-2:] == [JobEventKind.ATTEMPT_DEPLOYED, JobEventKind.FIRST_RECORD]


def test_the_first_commit_with_output_is_reported_once_per_attempt() -> None:
    driver = Driver().run()
    driver.commit(1)
    foreign = CheckpointCommitted(subtask("count", 0, 9), 1, has_output=True)
    driver.give(events.Committed(foreign))
    assert not driver.emitted(JobEventKind.FIRST_COMMIT), "nothing was written, or by another attempt"
    for number in (2, 3):
        driver.give(events.Committed(CheckpointCommitted(subtask("count", 0), number, has_output=True)))
    found = [effect.event for effect in driver.all if isinstance(effect, effects.Emit)]
    assert [event.attempt for event in found if event.kind is JobEventKind.FIRST_COMMIT] == [1]


def test_the_last_counters_of_a_subtask_come_with_its_failure() -> None:
    driver = Driver().run()
    counters = (OperatorCounters(operator_id="counts", records_in=10, records_out=3),)
    failed = SubtaskReport(
        subtask("count", 0), SubtaskPhase.SUBTASK_FAILED, FailureCause.USER_ERROR, "no", counters=counters
    )
    driver.give(events.Reported(failed))
    kept = {counter.operator_id: counter for counter in driver.result().counters}
    assert (kept["counts"].records_in, kept["counts"].records_out) == (10, 3)


def test_counters_are_summed_over_subtasks_and_restored_with_the_state() -> None:
    driver = Driver().run()
    for index in (0, 1):
        counters = (OperatorCounters(operator_id="counts", records_in=10, records_out=3),)
        who = SubtaskCounters(subtask=subtask("count", index), counters=counters)
        driver.give(events.CountersReported((who,)))
    late = SubtaskCounters(subtask=subtask("count", 0, 9), counters=())
    driver.give(events.CountersReported((late,)))
    views = {operator.operator_id: operator for operator in driver.master.status().operators}
    assert (views["counts"].records_in, views["counts"].records_out, views["counts"].vertex_id) == (20, 6, "count")


def test_the_load_of_a_running_subtask_is_shown() -> None:
    driver = Driver().run()

    def loads() -> dict[str, SubtaskLoad | None]:
        return {f"{view.vertex_id}-{view.subtask}": view.load for view in driver.master.status().subtasks}

    assert set(loads().values()) == {None}
    for load in (SubtaskLoad(100), SubtaskLoad(900, 50, 7, 8, True, True)):
        driver.give(events.CountersReported((SubtaskCounters(subtask("count", 1), load=load),)))
    driver.give(events.CountersReported((SubtaskCounters(subtask("count", 0, 9), load=SubtaskLoad(1)),)))
    assert loads() == {
        "read-0": None,
        "read-1": None,
        "count-0": None,
        "count-1": SubtaskLoad(900, 50, 7, 8, True, True),
    }
    driver.all_report(EXHAUSTED)
    assert set(loads().values()) == {None}, "its watermark stands still for good: that is no lag"


def test_the_first_records_too_far_ahead_of_the_clock_are_reported_once() -> None:
    driver = Driver().run()
    for ahead in (0, 3, 8):
        counters = (OperatorCounters(operator_id="source", records_in=10, records_ahead=ahead),)
        driver.give(events.CountersReported((SubtaskCounters(subtask=subtask("read", 0), counters=counters),)))
    (text,) = driver.emitted(JobEventKind.RECORDS_AHEAD)
    assert "the first 3 records of 'source' are further ahead of the clock than max_ahead allows" in text


def finishing(checkpoints: CheckpointOptions | None = None) -> Driver:
    """A job whose every subtask is exhausted, with its terminal checkpoint's id being written."""
    driver = Driver(word_count(checkpoints=checkpoints)).run()
    driver.all_report(EXHAUSTED)
    assert driver.state is JobState.FINISHING
    return driver


def test_all_exhausted_takes_a_terminal_checkpoint_at_once() -> None:
    driver = finishing()
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    assert all(trigger.terminal for _, trigger in driver.sent(TriggerCheckpoint))


def test_finished_only_after_every_subtask_has_committed_the_terminal_checkpoint() -> None:
    driver = finishing()
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    persist = driver.one(effects.PersistCheckpoint)
    assert persist.metadata.terminal
    driver.persisted(persist)
    assert not driver.of(effects.PersistResult)
    driver.commit(number - 1)
    assert not driver.of(effects.PersistResult)
    driver.commit(number)
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, result.token, result.dirty, result.retained) == ("FINISHED", 7, True, ())
    assert driver.state is JobState.FINISHING
    driver.give(events.ResultPersisted())
    assert driver.state is JobState.FINISHED
    assert [type(effect) for effect in driver.last][-2:] == [effects.ReleaseSlots, effects.CleanUp]
    assert len(driver.sent(CancelAttempt)) == 2
    assert not driver.give(events.CancelRequested())


def test_a_job_that_has_read_all_keeps_its_last_checkpoint_when_asked() -> None:
    driver = finishing(CheckpointOptions(retain_after_end=True))
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.commit(number)
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, [kept.checkpoint_id for kept in result.retained]) == ("FINISHED", [number])


def test_the_result_has_the_counters_of_the_terminal_checkpoint() -> None:
    driver = finishing()
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    persist = driver.one(effects.PersistCheckpoint)
    driver.persisted(persist)
    late = SubtaskCounters(subtask=subtask("count", 0), counters=(OperatorCounters("counts", 99, 99),))
    driver.give(events.CountersReported((late,)))
    driver.commit(number)
    assert {counter.operator_id: counter.records_in for counter in driver.result().counters}["counts"] == 0


def test_an_ordinary_checkpoint_under_way_at_the_end_is_followed_by_the_terminal_one() -> None:
    driver = Driver().run()
    first = driver.trigger()
    driver.all_report(EXHAUSTED)
    assert not driver.of(effects.PersistCheckpointId)
    driver.acknowledge(first)
    persist = driver.one(effects.PersistCheckpoint)
    assert not persist.metadata.terminal
    driver.persisted(persist)
    assert driver.one(effects.PersistCheckpointId).checkpoint_id == first + 1


def test_commits_that_never_come_restart_the_job() -> None:
    driver = finishing()
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.tick(60_000)
    assert driver.state is JobState.RESTARTING


def test_an_attempt_restored_from_a_terminal_checkpoint_finishes_again() -> None:
    before = finishing()
    number = before.one(effects.PersistCheckpointId).checkpoint_id
    before.give(events.CheckpointIdPersisted(number))
    before.acknowledge(number)
    persist = before.one(effects.PersistCheckpoint)
    driver = Driver(token=8)
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (persist.record,), persist.metadata, number + 1).request)
    assert not driver.sent(DiscoverSplits)
    driver.all_report(EXHAUSTED)
    assert driver.state is JobState.FINISHING
    assert driver.one(effects.PersistCheckpointId).checkpoint_id == number + 1


def test_deployment_that_takes_forever_is_a_failure() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    driver.tick(300_000)
    assert driver.state is JobState.RESTARTING
    assert "not started" in driver.master.status().error


@pytest.mark.parametrize("retained", [1, 3])
def test_retained_checkpoints_are_kept(retained: int) -> None:
    driver = Driver(word_count(checkpoints=CheckpointOptions(retained=retained))).run()
    for _ in range(5):
        driver.complete()
    assert [checkpoint.checkpoint_id for checkpoint in driver.master.checkpoints().all()] == [5, 4, 3, 2, 1][:retained]
