"""Orders of clients: another parallelism, an end with a savepoint. Durable first, carried out by whoever leads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import deploy_size, effects, events
from lockgate_coordinator.job.attempt import Attempt
from lockgate_coordinator.job.events import PersistKind
from lockgate_coordinator.job.in_flight import InFlightMisfit
from lockgate_proto.messages import (
    AttemptRecord,
    CancelAttempt,
    ChannelSide,
    ChannelState,
    CheckpointKind,
    CheckpointMetadata,
    CheckpointMode,
    CheckpointOptions,
    CompletedCheckpoint,
    Deploy,
    DrainSources,
    JobGraph,
    JobOrders,
    JobResult,
    JobState,
    Partitioning,
    StateHandle,
    StopOrder,
    SubtaskPhase,
    TriggerCheckpoint,
    VertexParallelism,
)

from tests.layouts import places
from tests.unit.coordinator.driver import SLOTS, Driver
from tests.unit.coordinator.jobs import DIRECTORY, SUBTASKS, ack, attempt, word_count

THREE = (VertexParallelism("count", 3),)
MORE_SLOTS = (*SLOTS, SlotOffer("tm-c", "c:1"))


def ask(driver: Driver, wanted: tuple[VertexParallelism, ...] = THREE, name: str = "r", slots: int = 3) -> None:
    driver.give(events.RescaleRequested(name, wanted, slots, 5_000))


def snapshot(driver: Driver) -> tuple[CompletedCheckpoint, CheckpointMetadata]:
    """Carries the checkpoint that the newest batch begins to its record, which is written."""
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.acknowledge(number)
    persist = driver.one(effects.PersistCheckpoint)
    return driver.persisted(persist), persist.metadata


def written(driver: Driver) -> JobOrders:
    """The orders that the newest batch wants written, are."""
    orders = driver.one(effects.PersistOrders).orders
    driver.give(events.OrdersPersisted(orders))
    return orders


# rescale


def test_a_rescale_takes_a_snapshot_then_is_durable_and_only_then_stops_anything() -> None:
    driver = Driver().run()
    ask(driver)
    assert not driver.sent(CancelAttempt)
    checkpoint, _ = snapshot(driver)
    assert checkpoint.kind is CheckpointKind.CHECKPOINT, "it is subsumed like any other"
    assert not driver.sent(CancelAttempt)
    assert written(driver) == JobOrders(THREE)
    assert {name for name, _ in driver.sent(CancelAttempt)} == {"tm-a", "tm-b"}
    answer = driver.one(effects.AnswerRescale)
    assert (answer.request_id, answer.error, answer.after) == ("r", "", 1)
    assert answer.parallelism == (VertexParallelism("read", 2), VertexParallelism("count", 3))
    request = driver.one(effects.RequestSlots)
    assert request.count == 3
    driver.deploy(request.request, MORE_SLOTS)
    deploys = [body for _, body in driver.sent(Deploy)]
    assert {key for deploy in deploys for key in places(deploy)} == {
        ("read", 0),
        ("read", 1),
        ("count", 0),
        ("count", 1),
        ("count", 2),
    }
    assert {deploy.restored_checkpoint_id for deploy in deploys} == {checkpoint.checkpoint_id}
    assert driver.master.status().restarts == 0, "nothing has failed"


def test_a_fresh_snapshot_is_used_as_it_is() -> None:
    driver = Driver().run()
    checkpoint, _ = driver.complete()
    driver.now += 500
    ask(driver)
    written(driver)
    driver.deploy(driver.one(effects.RequestSlots).request, MORE_SLOTS)
    assert {body.restored_checkpoint_id for _, body in driver.sent(Deploy)} == {checkpoint.checkpoint_id}


def test_one_that_is_under_way_is_waited_for_and_no_other_begins() -> None:
    driver = Driver().run()
    number = driver.trigger()
    ask(driver)
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    assert driver.one(effects.PersistOrders)
    assert written(driver) == JobOrders(THREE)
    assert driver.of(effects.RequestSlots)


def test_a_snapshot_at_the_new_parallelism_says_so() -> None:
    driver = Driver().run()
    ask(driver)
    snapshot(driver)
    written(driver)
    driver.deploy(driver.one(effects.RequestSlots).request, MORE_SLOTS)
    for key in (*SUBTASKS, ("count", 2)):
        driver.report(SubtaskPhase.SUBTASK_RUNNING, key)
    number = driver.trigger()
    driver.acknowledge(number)
    driver.give(events.Acknowledged(ack(number, "count", 2, driver.number)))
    shapes = driver.one(effects.PersistCheckpoint).metadata.vertices
    assert {shape.vertex_id: shape.parallelism for shape in shapes} == {"read": 2, "count": 3}


@pytest.mark.parametrize(
    ("wanted", "slots", "words"),
    [
        ((VertexParallelism("count", 3),), 2, "needs 3 slots, and 2 are available"),
        ((VertexParallelism("counts", 3),), 9, "no vertex 'counts'; it has read, count"),
        ((VertexParallelism("count", 0),), 9, "parallelism"),
        ((VertexParallelism("count", 129),), 999, "parallelism"),
        ((), 9, "No vertex is named"),
    ],
)
def test_an_impossible_rescale_is_refused_before_anything_is_stopped(
    wanted: tuple[VertexParallelism, ...], slots: int, words: str
) -> None:
    driver = Driver().run()
    ask(driver, wanted, slots=slots)
    assert words in driver.one(effects.AnswerRescale).error
    assert not driver.of(effects.PersistOrders)
    assert not driver.of(effects.PersistCheckpointId)
    assert driver.state is JobState.RUNNING


def test_a_condition_that_already_holds_is_answered_at_once() -> None:
    driver = Driver().run()
    ask(driver, (VertexParallelism("count", 2),))
    answer = driver.one(effects.AnswerRescale)
    assert (answer.error, answer.after) == ("", 0)
    assert not driver.of(effects.PersistCheckpointId)


def test_asking_again_joins_and_another_wish_has_to_wait() -> None:
    driver = Driver().run()
    ask(driver)
    begun = driver.last
    ask(driver, name="again")
    assert not driver.of(effects.AnswerRescale)
    ask(driver, (VertexParallelism("count", 1),), name="other")
    assert "being rescaled already" in driver.one(effects.AnswerRescale).error
    driver.last = begun
    snapshot(driver)
    written(driver)
    assert [answer_rescale.request_id for answer_rescale in driver.of(effects.AnswerRescale)] == ["r", "again"]


def test_a_snapshot_that_fails_leaves_the_job_as_it_was() -> None:
    driver = Driver().run()
    ask(driver)
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    driver.tick(5_001)
    assert "The job continues as before" in driver.one(effects.AnswerRescale).error
    assert driver.state is JobState.RUNNING
    assert not driver.of(effects.PersistOrders)


def test_an_attempt_that_dies_meanwhile_is_followed_by_one_at_the_new_parallelism() -> None:
    driver = Driver().run()
    driver.complete()
    driver.now += 2_500  # the next one is under way
    ask(driver)
    driver.fail()
    assert written(driver) == JobOrders(THREE)
    assert not driver.one(effects.AnswerRescale).error
    driver.tick(5_000)
    assert driver.one(effects.RequestSlots).count == 3


def test_a_job_that_waits_for_slots_is_rescaled_without_a_snapshot() -> None:
    driver = Driver()
    driver.recover()
    ask(driver, (VertexParallelism("count", 1), VertexParallelism("read", 1)))
    written(driver)
    assert driver.one(effects.RequestSlots).count == 1


def test_a_new_leader_continues_at_the_parallelism_that_was_ordered() -> None:
    checkpoint, metadata = Driver().run().complete()
    driver = Driver(token=8)
    driver.give(events.Recovered(AttemptRecord(attempt=1), (checkpoint,), metadata, 2, JobOrders(THREE)))
    assert driver.one(effects.RequestSlots).count == 3


def test_orders_that_could_not_be_written_are_written_again() -> None:
    driver = Driver().run()
    ask(driver)
    snapshot(driver)
    assert driver.of(effects.PersistOrders)
    driver.give(events.PersistFailed(PersistKind.ORDERS, "away"))
    assert not driver.of(effects.PersistOrders)
    driver.tick(1_000)
    written(driver)
    assert not driver.one(effects.AnswerRescale).error


def test_orders_wait_while_zookeeper_is_away() -> None:
    driver = Driver()
    driver.recover()
    driver.give(events.Suspended())
    ask(driver, (VertexParallelism("count", 1),))
    assert not driver.of(effects.PersistOrders)
    driver.give(events.Resumed())
    assert driver.of(effects.PersistOrders)


def test_a_cancel_takes_precedence_over_a_pending_rescale() -> None:
    driver = Driver().run()
    ask(driver)
    driver.give(events.CancelRequested())
    assert "has ended" in driver.one(effects.AnswerRescale).error
    driver.give(events.OrdersPersisted(JobOrders(THREE)))
    assert not driver.of(effects.RequestSlots)


def test_counters_of_removed_subtasks_do_not_count_twice() -> None:
    driver = Driver().run()
    ask(driver, (VertexParallelism("count", 1), VertexParallelism("read", 1)), slots=2)
    snapshot(driver)
    before = {operator.operator_id: operator.records_in for operator in driver.master.status().operators}
    written(driver)
    driver.deploy(driver.one(effects.RequestSlots).request, SLOTS[:1])
    assert {operator.operator_id: operator.records_in for operator in driver.master.status().operators} == before


# stop


def stop(driver: Driver, *, drain: bool = False, name: str = "s") -> None:
    driver.give(events.StopRequested(name, drain, 5_000))


def test_a_stop_is_durable_before_its_savepoint_begins_and_nothing_follows_that() -> None:
    driver = Driver().run()
    stop(driver)
    assert not driver.of(effects.PersistCheckpointId)
    assert written(driver).stop == StopOrder(False, 0)
    savepoint, _ = snapshot(driver)
    assert savepoint.kind is CheckpointKind.SAVEPOINT
    answer = driver.one(effects.AnswerSavepoint)
    assert answer.savepoint is not None
    assert (answer.request_id, answer.savepoint.checkpoint_id) == ("s", savepoint.checkpoint_id)
    assert not driver.of(effects.PersistResult), "what it holds is not committed yet"
    driver.tick(5_000)
    assert not driver.of(effects.PersistCheckpointId), "no checkpoint may show more than the savepoint holds"
    driver.commit(savepoint.checkpoint_id)
    result = driver.result()
    assert (result.outcome, result.stopped_with) == ("FINISHED", savepoint.checkpoint_id)
    assert [checkpoint.checkpoint_id for checkpoint in result.retained] == [savepoint.checkpoint_id]
    driver.give(events.ResultPersisted())
    assert driver.state is JobState.FINISHED


def test_a_stopped_job_keeps_its_savepoint_and_no_checkpoint_beside_it() -> None:
    driver = Driver(word_count(checkpoints=CheckpointOptions(retain_after_end=True))).run()
    driver.complete()
    stop(driver)
    written(driver)
    savepoint, _ = snapshot(driver)
    driver.commit(savepoint.checkpoint_id)
    assert [kept.checkpoint_id for kept in driver.result().retained] == [savepoint.checkpoint_id]


def test_a_drain_ends_the_sources_and_its_savepoint_is_the_terminal_checkpoint() -> None:
    driver = Driver().run()
    stop(driver, drain=True)
    written(driver)
    assert {name for name, _ in driver.sent(DrainSources)} == {"tm-a", "tm-b"}
    driver.tick(3_000)
    assert not driver.of(effects.PersistCheckpointId), "a periodic one would hold a part of the end"
    driver.all_report(SubtaskPhase.SUBTASK_EXHAUSTED)
    savepoint, metadata = snapshot(driver)
    assert (savepoint.kind, metadata.terminal) == (CheckpointKind.SAVEPOINT, True)
    assert driver.one(effects.AnswerSavepoint).savepoint == replace(savepoint, metadata=b"")
    driver.commit(savepoint.checkpoint_id)
    assert driver.result().stopped_with == savepoint.checkpoint_id


def test_asking_to_stop_again_joins_and_stopping_otherwise_is_refused() -> None:
    driver = Driver().run()
    stop(driver)
    begun = driver.last
    stop(driver, name="again")
    stop(driver, drain=True, name="other")
    answer = driver.one(effects.AnswerSavepoint)
    assert ("another way" in answer.error, answer.busy) == (True, False)
    ask(driver)
    assert "about to end" in driver.one(effects.AnswerRescale).error
    driver.last = begun
    written(driver)
    snapshot(driver)
    assert [answer_savepoint.request_id for answer_savepoint in driver.of(effects.AnswerSavepoint)] == ["s", "again"]


def failed_stop(driver: Driver) -> None:
    """A stop is written, and its savepoint times out."""
    stop(driver)
    written(driver)
    driver.give(events.CheckpointIdPersisted(driver.one(effects.PersistCheckpointId).checkpoint_id))
    driver.tick(5_001)


def test_without_a_savepoint_the_stop_is_taken_back_and_the_job_runs_on() -> None:
    driver = Driver().run()
    failed_stop(driver)
    assert driver.of(effects.PersistCheckpointId), "periodic ones go on"
    assert not driver.of(effects.AnswerSavepoint), "a leader that came now would still end the job"
    assert written(driver) == JobOrders()
    answer = driver.one(effects.AnswerSavepoint)
    assert (answer.request_id, answer.busy) == ("s", False)
    assert "The job runs on" in answer.error
    assert driver.state is JobState.RUNNING


def test_orders_wait_until_a_stop_that_failed_is_taken_back() -> None:
    driver = Driver().run()
    failed_stop(driver)
    begun = driver.last
    stop(driver, name="again")
    answer = driver.one(effects.AnswerSavepoint)
    assert ("withdrawn" in answer.error, answer.busy) == (True, True)
    ask(driver)
    assert "withdrawn" in driver.one(effects.AnswerRescale).error
    driver.last = begun
    written(driver)
    assert driver.one(effects.AnswerSavepoint).request_id == "s"


def test_a_failed_stop_can_be_repeated_in_the_same_attempt() -> None:
    driver = Driver().run()
    failed_stop(driver)
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    written(driver)
    driver.give(events.CheckpointIdPersisted(number))  # the periodic one that went on
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    stop(driver, name="again")
    assert written(driver).stop == StopOrder(False, number)
    savepoint, _ = snapshot(driver)
    assert savepoint.kind is CheckpointKind.SAVEPOINT
    answer = driver.one(effects.AnswerSavepoint)
    assert (answer.request_id, answer.error) == ("again", "")


@pytest.mark.parametrize("drain", [False, True])
def test_an_attempt_that_dies_before_the_savepoint_is_followed_by_one_that_is_stopped(drain: bool) -> None:
    driver = Driver().run()
    stop(driver, drain=drain)
    written(driver)
    driver.fail()
    driver.tick(5_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    begun = driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert any(isinstance(effect, effects.PersistCheckpointId) for effect in begun) is not drain
    assert bool(driver.sent(DrainSources)) is drain


@pytest.mark.parametrize("drain", [False, True])
def test_a_new_leader_carries_out_a_stop_whose_savepoint_is_missing(drain: bool) -> None:
    checkpoint, metadata = Driver().run().complete()
    driver = Driver(token=8)
    orders = JobOrders(stop=StopOrder(drain, checkpoint.checkpoint_id))
    driver.give(events.Recovered(AttemptRecord(attempt=1), (checkpoint,), metadata, 2, orders))
    driver.deploy(driver.one(effects.RequestSlots).request)
    begun = driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert any(isinstance(effect, effects.PersistCheckpointId) for effect in begun) is not drain
    assert bool(driver.sent(DrainSources)) is drain


def test_a_new_leader_ends_a_job_whose_stop_has_its_savepoint_once_that_is_committed() -> None:
    first = Driver().run()
    stop(first)
    orders = written(first)
    savepoint, metadata = snapshot(first)
    driver = Driver(token=8)
    driver.give(events.Recovered(AttemptRecord(attempt=1), (savepoint,), metadata, 2, orders))
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert not driver.of(effects.PersistResult), "only subtasks that run have committed what it holds"
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert driver.one(effects.PersistResult).result.stopped_with == savepoint.checkpoint_id
    assert not driver.of(effects.PersistCheckpointId)
    assert driver.sent(CancelAttempt), "nothing may be committed beyond the savepoint"


def test_a_savepoint_from_before_the_order_does_not_carry_it_out() -> None:
    old = replace(Driver().run().complete()[0], kind=CheckpointKind.SAVEPOINT)
    metadata = Driver().run().complete()[1]
    driver = Driver(token=8)
    orders = JobOrders(stop=StopOrder(False, old.checkpoint_id))
    driver.give(events.Recovered(AttemptRecord(attempt=1), (old,), metadata, 2, orders))
    driver.deploy(driver.one(effects.RequestSlots).request)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert not driver.of(effects.PersistResult)
    assert driver.of(effects.PersistCheckpointId)


def user_savepoint(driver: Driver, name: str = "user") -> int:
    """A client asks for a savepoint, which is under way; its id."""
    driver.give(events.SavepointRequested(name, 60_000))
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    return number


def results(driver: Driver) -> list[JobResult]:
    return [persist_result.result for persist_result in driver.all if isinstance(persist_result, effects.PersistResult)]


def test_a_users_savepoint_that_is_under_way_does_not_end_a_stop() -> None:
    driver = Driver().run()
    driver.complete()
    number = user_savepoint(driver)
    stop(driver)
    written(driver)
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    assert [answer_savepoint.request_id for answer_savepoint in driver.of(effects.AnswerSavepoint)] == ["user"]
    assert not results(driver), "no sink has committed anything yet"
    assert not driver.sent(CancelAttempt)
    savepoint, _ = snapshot(driver)
    assert driver.one(effects.AnswerSavepoint).request_id == "s"
    driver.commit(number)
    assert not results(driver), "what the stop's own savepoint holds is not committed"
    driver.commit(savepoint.checkpoint_id)
    assert driver.result().stopped_with == savepoint.checkpoint_id
    assert [checkpoint.checkpoint_id for checkpoint in driver.result().retained] == [savepoint.checkpoint_id, number]


@pytest.mark.parametrize("drain", [False, True])
def test_clients_waiting_for_a_savepoint_behind_a_stop_get_that_one(drain: bool) -> None:
    driver = Driver().run()
    stop(driver, drain=drain)
    written(driver)
    begun = driver.last
    driver.give(events.SavepointRequested("user", 60_000))
    assert not driver.of(effects.PersistCheckpointId), "nothing may lie between a drain and what it leads to"
    if drain:
        begun = driver.all_report(SubtaskPhase.SUBTASK_EXHAUSTED)
    driver.last = begun
    savepoint, _ = snapshot(driver)
    answers = driver.of(effects.AnswerSavepoint)
    assert {answer.request_id for answer in answers} == {"s", "user"}
    assert {answer.savepoint.checkpoint_id for answer in answers if answer.savepoint} == {savepoint.checkpoint_id}
    driver.commit(savepoint.checkpoint_id)
    assert [checkpoint.checkpoint_id for checkpoint in driver.result().retained] == [savepoint.checkpoint_id]


def test_a_savepoint_whose_id_is_being_written_when_a_drain_begins_waits_for_the_end() -> None:
    driver = Driver().run()
    driver.give(events.SavepointRequested("user", 60_000))
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    stop(driver, drain=True)
    written(driver)
    driver.give(events.CheckpointIdPersisted(number))
    assert not driver.sent(TriggerCheckpoint), "sources that have stopped would take part"
    driver.all_report(SubtaskPhase.SUBTASK_EXHAUSTED)
    savepoint, metadata = snapshot(driver)
    assert metadata.terminal
    answers = [
        answer_savepoint for answer_savepoint in driver.all if isinstance(answer_savepoint, effects.AnswerSavepoint)
    ]
    assert {answer.request_id: answer.savepoint and answer.savepoint.checkpoint_id for answer in answers} == {
        "s": savepoint.checkpoint_id,
        "user": savepoint.checkpoint_id,
    }


def test_a_stop_follows_every_savepoint_that_began_before_it() -> None:
    """So a new leader does not take one of those for the stop's own."""
    driver = Driver().run()
    driver.complete()
    number = user_savepoint(driver)
    stop(driver)
    assert written(driver).stop == StopOrder(False, number)


def test_an_attempt_that_fails_after_a_users_savepoint_is_followed_by_one_that_commits_it_and_ends() -> None:
    driver = Driver().run()
    stop(driver)
    orders = driver.one(effects.PersistOrders).orders
    number = user_savepoint(driver)
    driver.give(events.OrdersPersisted(orders))
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.fail()
    driver.tick(5_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert not results(driver)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert driver.result().stopped_with == number


def test_an_attempt_that_fails_before_committing_the_stops_savepoint_is_followed_by_one_that_commits_it() -> None:
    driver = Driver().run()
    stop(driver)
    written(driver)
    savepoint, _ = snapshot(driver)
    driver.fail()
    driver.tick(5_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert not results(driver)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert driver.result().stopped_with == savepoint.checkpoint_id


def test_a_savepoint_is_given_again_also_while_the_job_ends_and_after() -> None:
    driver = Driver().run()
    driver.give(events.SavepointRequested("mine"))
    savepoint, _ = snapshot(driver)
    driver.commit(savepoint.checkpoint_id)
    for event in (events.CancelRequested(), events.ResultPersisted()):
        driver.give(event)
        if isinstance(event, events.CancelRequested):
            for name in ("tm-a", "tm-b"):
                driver.gone(name)
        driver.give(events.SavepointRequested("mine"))
        answer = driver.one(effects.AnswerSavepoint)
        assert answer.savepoint is not None
        assert answer.savepoint.checkpoint_id == savepoint.checkpoint_id
        driver.give(events.SavepointRequested("other"))
        assert driver.one(effects.AnswerSavepoint).busy, "the result of the job will say it"


def test_orders_that_come_when_the_job_has_ended_are_left_to_its_result() -> None:
    driver = Driver().run()
    driver.give(events.CancelRequested())
    for name in ("tm-a", "tm-b"):
        driver.gone(name)
    driver.give(events.ResultPersisted())
    stop(driver)
    stopped = driver.one(effects.AnswerSavepoint)
    assert ("has ended" in stopped.error, stopped.busy) == (True, True)
    ask(driver)
    rescaled = driver.one(effects.AnswerRescale)
    assert ("has ended" in rescaled.error, rescaled.busy) == (True, True)


def test_late_answers_to_orders_are_ignored() -> None:
    driver = Driver().run()
    driver.give(events.OrdersPersisted(JobOrders(THREE)))
    assert not driver.of(effects.Send)
    assert driver.state is JobState.RUNNING


# savepoints that are disposed of


def test_a_disposed_savepoint_is_not_listed_and_the_newest_is_never_deleted() -> None:
    driver = Driver().run()
    driver.give(events.SavepointRequested("user"))
    savepoint, _ = snapshot(driver)
    driver.give(events.SavepointDisposed(savepoint.checkpoint_id))
    assert driver.master.checkpoints().all(), "it is what the job would restart from"
    newest, _ = driver.complete()
    driver.give(events.SavepointDisposed(savepoint.checkpoint_id))
    assert [checkpoint.checkpoint_id for checkpoint in driver.master.checkpoints().all()] == [newest.checkpoint_id]


def test_a_savepoint_that_is_being_deleted_is_in_no_result_and_answers_no_request() -> None:
    driver = Driver().run()
    for name in ("mine", "other"):
        driver.give(events.SavepointRequested(name))
        savepoint, _ = snapshot(driver)
        driver.commit(savepoint.checkpoint_id)
    newest, _ = driver.complete()
    driver.commit(newest.checkpoint_id)
    driver.give(events.DisposalBegun(1))
    assert [checkpoint.checkpoint_id for checkpoint in driver.master.checkpoints().all()] == [3, 2, 1], (
        "it is there yet"
    )
    driver.give(events.SavepointRequested("mine"))
    assert driver.of(effects.PersistCheckpointId), "what goes is no answer"
    driver.give(events.CancelRequested())
    for name in ("tm-a", "tm-b"):
        driver.gone(name)
    assert [checkpoint.checkpoint_id for checkpoint in driver.result().retained] == [2]
    assert driver.master.is_ending


def test_a_job_that_ends_before_its_stop_is_recorded_was_not_stopped() -> None:
    driver = Driver().run()
    driver.all_report(SubtaskPhase.SUBTASK_EXHAUSTED)
    begun = driver.last
    stop(driver)
    written(driver)
    driver.last = begun
    terminal, _ = snapshot(driver)
    driver.commit(terminal.checkpoint_id)
    assert driver.result().stopped_with == 0
    answers = [
        answer_savepoint for answer_savepoint in driver.all if isinstance(answer_savepoint, effects.AnswerSavepoint)
    ]
    assert "ended: finished" in answers[-1].error


def test_a_rescale_of_a_job_that_is_not_running_yet_asks_to_try_again() -> None:
    driver = Driver()
    driver.recover()
    ask(driver, slots=0)  # after a failover the task managers have yet to register
    answer = driver.one(effects.AnswerRescale)
    assert answer.busy
    assert "is not running" in answer.error


# snapshots that hold records in flight


UNALIGNED = CheckpointOptions(mode=CheckpointMode.UNALIGNED)


def unaligned() -> Driver:
    """Records in flight go by key, and fit any parallelism."""
    return Driver(word_count(checkpoints=UNALIGNED))


def broadcasting(parallelism: int = 2) -> JobGraph:
    """A job whose records in flight are broadcast, and so fit no other subtasks."""
    graph = word_count(parallelism=parallelism, checkpoints=UNALIGNED)
    edge = replace(graph.edges[0], partitioning=Partitioning.BROADCAST, keys=())
    read, count = graph.vertices
    shown = replace(count, operators=count.operators[1:])
    return replace(graph, vertices=(read, shown), edges=(edge,))


def test_an_unaligned_job_is_rescaled_from_the_records_in_flight_of_a_fresh_snapshot() -> None:
    driver = unaligned().run()
    driver.complete()
    ask(driver)
    assert driver.of(effects.PersistOrders)


def test_the_snapshot_for_a_rescale_does_not_wait_for_records_in_flight() -> None:
    driver = unaligned().run()
    ask(driver)
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    assert {(trigger.checkpoint_id, trigger.unaligned) for _, trigger in driver.sent(TriggerCheckpoint)} == {(1, True)}


def test_an_unaligned_job_that_restarts_is_made_smaller_at_once() -> None:
    driver = unaligned().run()
    driver.complete()
    driver.fail()
    ask(driver, (VertexParallelism("count", 1),))
    assert driver.of(effects.PersistOrders)


def test_a_job_whose_records_in_flight_fit_no_other_subtasks_is_rescaled_from_a_snapshot_without_any() -> None:
    driver = Driver(broadcasting()).run()
    driver.complete()  # fresh, but others like it may hold records in flight
    ask(driver)
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    assert not any(trigger.unaligned for _, trigger in driver.sent(TriggerCheckpoint))
    driver.acknowledge(number)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    assert driver.of(effects.PersistOrders)
    driver.tick(3_000)
    assert not driver.of(effects.PersistCheckpointId), "another one could hold records in flight"
    assert not driver.of(effects.WakeAt) or driver.one(effects.WakeAt).at_ms > driver.now


def test_a_job_whose_records_in_flight_fit_no_other_subtasks_is_rescaled_when_it_runs_again() -> None:
    driver = Driver(broadcasting()).run()
    driver.complete()
    ask(driver)
    driver.fail()
    answer = driver.one(effects.AnswerRescale)
    assert answer.busy
    assert not driver.of(effects.PersistOrders)
    ask(driver, (VertexParallelism("count", 1),))
    assert driver.one(effects.AnswerRescale).busy


def test_a_rescale_whose_input_ends_meanwhile_does_not_end_the_job() -> None:
    driver = Driver().run()
    ask(driver)
    snapshot(driver)
    begun = driver.last
    driver.all_report(SubtaskPhase.SUBTASK_EXHAUSTED)
    number = max(checkpoint.checkpoint_id for checkpoint in driver.master.checkpoints().all())
    driver.commit(number)
    assert not [persist_result for persist_result in driver.all if isinstance(persist_result, effects.PersistResult)]
    driver.last = begun
    written(driver)
    assert driver.state in (JobState.RESTARTING, JobState.WAITING_FOR_SLOTS)


def test_no_attempt_begins_at_the_old_width_while_the_new_one_is_being_written() -> None:
    driver = Driver(broadcasting()).run()
    ask(driver)
    aligned, _ = snapshot(driver)
    assert driver.of(effects.PersistOrders)
    driver.fail()
    driver.tick(900)
    driver.give(events.PersistFailed(PersistKind.ORDERS, "away"))
    driver.tick(900)
    assert driver.state is JobState.RESTARTING
    assert not [request_slots for request_slots in driver.all if isinstance(request_slots, effects.RequestSlots)][1:]
    assert all(wake_at.at_ms > driver.now for wake_at in driver.of(effects.WakeAt)), "it does not spin"
    driver.tick(100)
    written(driver)
    driver.tick(5_000)
    request = [request_slots for request_slots in driver.all if isinstance(request_slots, effects.RequestSlots)][-1]
    assert request.count == 3
    driver.deploy(request.request, MORE_SLOTS)
    assert {body.restored_checkpoint_id for _, body in driver.sent(Deploy)} == {aligned.checkpoint_id}


def flying(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """The snapshot, with a record between read-1 and every subtask of count."""
    channel = ChannelState(ChannelSide.INPUT_CHANNEL, "read", 1, StateHandle(inline=b"x"), 1, 1)
    states = (
        replace(subtask, channels=(channel,)) if subtask.vertex_id == "count" else subtask
        for subtask in metadata.subtasks
    )
    return replace(metadata, subtasks=tuple(states))


def test_only_records_in_flight_that_fit_are_given_to_a_job_that_is_made_smaller_before_it_runs() -> None:
    """In an aligned mode, but started from an unaligned checkpoint."""
    for graph, is_bound in ((word_count(), False), (replace(broadcasting(), checkpoints=None), True)):
        checkpoint, metadata = Driver(graph).run().complete()
        driver = Driver(graph, token=8)
        driver.give(events.Recovered(AttemptRecord(attempt=1), (checkpoint,), flying(metadata), 2))
        ask(driver, (VertexParallelism("count", 1), VertexParallelism("read", 1)))
        assert bool(driver.of(effects.AnswerRescale)) is is_bound
        assert bool(driver.of(effects.PersistOrders)) is not is_bound


def test_records_in_flight_that_do_not_fit_are_never_deployed_to_another_width() -> None:
    _, metadata = Driver(broadcasting()).run().complete()
    wider = Attempt(normalize(broadcasting(3)), attempt(), MORE_SLOTS, 1)
    with pytest.raises(InFlightMisfit, match="holds records in flight"):
        wider.deploy(flying(metadata), DIRECTORY, 0)
    assert wider.deployed_ms is None


def test_a_rescale_whose_messages_would_be_too_large_is_refused_and_the_job_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver().run()
    ask(driver)
    monkeypatch.setattr(deploy_size.check_size, "__defaults__", (10,))
    snapshot(driver)
    error = driver.one(effects.AnswerRescale).error
    assert "fit into a message" in error
    assert "continues as before" in error
    assert not driver.of(effects.PersistOrders)
    assert driver.state is JobState.RUNNING
    driver.tick(5_000)
    assert driver.of(effects.PersistCheckpointId), "checkpoints go on"


def test_checkpoints_continue_when_a_rescale_proves_impossible_before_its_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(word_count(checkpoints=CheckpointOptions(max_concurrent=2))).run()
    first, second = driver.trigger(), driver.trigger()
    ask(driver)
    monkeypatch.setattr(deploy_size.check_size, "__defaults__", (10,))
    driver.acknowledge(first)
    driver.persisted(driver.one(effects.PersistCheckpoint))  # fresh enough, so the rescale is tried from it
    assert "continues as before" in driver.one(effects.AnswerRescale).error
    driver.acknowledge(second)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    if not driver.of(effects.PersistCheckpointId):
        driver.tick(1_000)
    third, _ = snapshot(driver)
    driver.commit(third.checkpoint_id)
    driver.tick(1_000)
    assert driver.of(effects.PersistCheckpointId), "the third was not the last one of the attempt"
