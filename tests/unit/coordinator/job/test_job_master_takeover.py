"""A new leader: what it makes of a job's records."""

from __future__ import annotations

from dataclasses import replace

from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_proto.messages import (
    AssignSplits,
    AttemptRecord,
    CancelAttempt,
    CheckpointMetadata,
    CompletedCheckpoint,
    Deploy,
    DiscoverSplits,
    JobEventKind,
    JobGraph,
    SplitState,
    SubtaskPhase,
)

from tests.unit.coordinator.driver import SLOTS, Driver
from tests.unit.coordinator.jobs import RECORD, attempt, source_state, word_count


def snapshot(driver: Driver | None = None) -> tuple[CompletedCheckpoint, CheckpointMetadata]:
    """A completed checkpoint of the word count."""
    return (driver or Driver().run()).complete()


def test_a_new_leader_continues_from_the_newest_checkpoint_with_a_new_attempt_and_new_ids() -> None:
    checkpoint, metadata = snapshot()
    driver = Driver(token=8)
    driver.recover(AttemptRecord(attempt=3, task_manager_ids=("tm-a", "tm-b"), restarts=2), (checkpoint,), metadata, 5)
    record = driver.offer(driver.one(effects.RequestSlots).request).record
    assert (record.attempt, record.restarts, record.token) == (4, 3, 8)
    driver.give(events.AttemptPersisted(4))
    assert driver.sent(Deploy)[0][1].restored_checkpoint_id == 1
    assert driver.emitted(JobEventKind.JOB_RECOVERED) == ["continues from checkpoint 1"]
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    driver.tick(1_000)
    assert driver.one(effects.PersistCheckpointId).checkpoint_id == 5


def test_the_old_attempt_is_cancelled_only_where_it_is_not_replaced() -> None:
    driver = Driver()
    old = AttemptRecord(attempt=3, task_manager_ids=("tm-a", "tm-c"))
    driver.deploy(driver.recover(old).request)
    cancels = driver.sent(CancelAttempt)
    assert [(name, body.attempt) for name, body in cancels] == [("tm-c", attempt(3))]


def test_restored_sources_with_all_their_splits_are_not_asked_again() -> None:
    checkpoint, metadata = snapshot()
    driver = Driver()
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (checkpoint,), metadata, 2).request)
    assert not driver.sent(DiscoverSplits)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert not driver.sent(AssignSplits)


def test_splits_assigned_behind_the_barrier_are_found_again() -> None:
    first = Driver().run()
    number = first.trigger()
    done = source_state("read", 0, (SplitState(split="x", offset=2, end=5),))
    first.acknowledge(number, {("read", 0): done, ("read", 1): source_state("read", 1, (), complete=False)})
    persist = first.one(effects.PersistCheckpoint)
    driver = Driver()
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (persist.record,), persist.metadata, 2).request)
    ((_, discover),) = driver.sent(DiscoverSplits)
    assert discover.known == ("x",)


def test_leftovers_of_the_leader_before_are_deleted_once_the_job_runs_again() -> None:
    checkpoint, metadata = snapshot()
    older = replace(checkpoint, checkpoint_id=0)
    driver = Driver()
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (checkpoint, older), metadata, 2).request)
    assert not driver.of(effects.DiscardCheckpoint)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert [
        discard_checkpoint.checkpoint.checkpoint_id for discard_checkpoint in driver.of(effects.DiscardCheckpoint)
    ] == [0]


def test_a_second_recovery_is_ignored() -> None:
    driver = Driver()
    driver.recover()
    assert not driver.give(events.Recovered(None, (), None, 1))


def test_a_snapshot_of_another_parallelism_is_spread_over_the_subtasks() -> None:
    checkpoint, metadata = snapshot()
    driver = Driver(word_count(parallelism=3))
    request = driver.recover(AttemptRecord(attempt=1), (checkpoint,), metadata, 2).request
    driver.deploy(request, (*SLOTS, SlotOffer("tm-c", "c:1")))
    restored = {
        (subtask_state.vertex_id, subtask_state.subtask)
        for _, deploy in driver.sent(Deploy)
        for subtask_state in deploy.restore
    }
    assert restored == {(vertex, index) for vertex in ("read", "count") for index in range(3)}


def _renamed() -> JobGraph:
    """The word count with another id for its source."""
    graph = word_count()
    read, count = graph.vertices
    return replace(graph, vertices=(replace(read, operators=(replace(read.operators[0], id="other"),)), count))


def test_a_snapshot_with_unmatched_state_fails_the_job_with_a_message_and_deletes_nothing() -> None:
    checkpoint, metadata = snapshot()
    driver = Driver(_renamed())
    driver.give(events.Recovered(AttemptRecord(attempt=1), (checkpoint,), metadata, 2))
    result = driver.one(effects.PersistResult).result
    assert "state of operator 'source'" in result.error
    assert [checkpoint.checkpoint_id for checkpoint in result.retained] == [1]


def test_a_submission_that_allows_it_leaves_state_behind() -> None:
    checkpoint, metadata = snapshot()
    driver = Driver(_renamed(), record=replace(RECORD, allow_unmatched_state=True))
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (checkpoint,), metadata, 2).request)
    assert not [
        subtask_state.operators
        for _, deploy in driver.sent(Deploy)
        for subtask_state in deploy.restore
        if subtask_state.operators
    ]


def test_a_job_with_a_checkpoint_is_never_started_empty() -> None:
    checkpoint, _ = snapshot()
    driver = Driver()
    driver.give(events.Recovered(AttemptRecord(attempt=1), (checkpoint,), None, 2))
    assert driver.one(effects.PersistResult).result.outcome == "FAILED"
    assert "not started empty" in driver.result().error


def test_a_job_is_never_started_from_an_older_checkpoint_than_the_newest() -> None:
    checkpoint, metadata = snapshot()
    newer = replace(checkpoint, checkpoint_id=2)
    driver = Driver()
    driver.give(events.Recovered(AttemptRecord(attempt=1), (newer, checkpoint), metadata, 3))
    assert driver.one(effects.PersistResult).result.outcome == "FAILED"
    assert len(driver.result().retained) == 2


def test_a_savepoint_that_was_not_read_does_not_start_the_job_empty() -> None:
    driver = Driver(record=replace(RECORD, restore_from="/old/chk-9/_metadata"))
    driver.give(events.Recovered(None, (), None, 1))
    assert "/old/chk-9/_metadata" in driver.one(effects.PersistResult).result.error


def test_a_job_started_from_a_savepoint_uses_ids_above_it() -> None:
    _, metadata = snapshot()
    driver = Driver(record=replace(RECORD, restore_from="/old/chk-9/_metadata"))
    driver.run(metadata=replace(metadata, checkpoint_id=9))
    assert driver.trigger() == 10


def test_sources_of_a_job_started_from_a_savepoint_look_for_splits_until_it_has_a_checkpoint_of_its_own() -> None:
    """The savepoint has all that the run before was to read, which may be less than there is now."""
    _, metadata = snapshot()
    driver = Driver(record=replace(RECORD, run_id="run-2", restore_from="/old/chk-1/_metadata"))
    driver.deploy(driver.recover(metadata=metadata).request)
    assert driver.sent(DiscoverSplits)
    driver.give(events.TaskManagerLost("tm-a", "it is gone"))
    driver.tick(60_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert driver.sent(DiscoverSplits)


def test_an_unreadable_snapshot_fails_the_job_and_deletes_nothing() -> None:
    checkpoint, _ = snapshot()
    driver = Driver()
    driver.give(events.RecoveryFailed("chk-1/_metadata is corrupt", False, AttemptRecord(attempt=2), (checkpoint,), 2))
    result = driver.one(effects.PersistResult).result
    assert (result.outcome, result.error.splitlines()[0]) == ("FAILED", "chk-1/_metadata is corrupt")
    assert "Checkpoint 1 may be only partially committed" in result.error
    assert [checkpoint.checkpoint_id for checkpoint in result.retained] == [1]


def test_storage_that_may_come_back_is_asked_again_with_growing_pauses() -> None:
    driver = Driver()
    pauses = []
    for _ in range(7):
        driver.give(events.RecoveryFailed("no route to storage", True))
        assert "no route to storage" in driver.master.status().message
        pauses.append(driver.one(effects.WakeAt).at_ms - driver.now)
        driver.tick(pauses[-1])
        assert driver.of(effects.Recover)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    driver.recover()


def test_a_source_state_that_cannot_be_decoded_fails_the_job() -> None:
    checkpoint, metadata = snapshot()
    state = metadata.subtasks[2]
    operator = state.operators[0]
    assert operator.handle is not None
    broken = replace(state, operators=(replace(operator, handle=replace(operator.handle, inline=b"\xff\xff")),))
    driver = Driver()
    metadata = replace(metadata, subtasks=(*metadata.subtasks[:2], broken, *metadata.subtasks[3:]))
    driver.give(events.Recovered(AttemptRecord(attempt=1), (checkpoint,), metadata, 2))
    assert driver.result().outcome == "FAILED"
    assert "corrupt" in driver.result().error
    assert len(driver.result().retained) == 1


def test_an_old_attempt_on_a_late_returning_task_manager_is_cancelled() -> None:
    driver = Driver().run(attempt=AttemptRecord(attempt=3, task_manager_ids=("tm-a", "tm-b")))
    driver.give(events.StillRunning("tm-c", attempt(3)))
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-c"]
    driver.give(events.StillRunning("tm-a", attempt(4)))
    assert not driver.sent(CancelAttempt)


def test_an_old_attempt_that_a_deployment_will_replace_is_left_alone() -> None:
    driver = Driver()
    driver.recover(AttemptRecord(attempt=3, task_manager_ids=("tm-a", "tm-b")))
    assert not driver.give(events.StillRunning("tm-a", attempt(3)))
    driver.give(events.StillRunning("tm-a", attempt(2)))
    assert driver.sent(CancelAttempt)
