"""Only the slots of a lost task manager restart, where no record crosses between slots."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.attempt import PART_TIMEOUT_MS
from lockgate_coordinator.job.recurrence import ENOUGH
from lockgate_coordinator.job.trace import Starts
from lockgate_proto.codec import decode
from lockgate_proto.messages import (
    AssignSplits,
    AttemptProgress,
    AttemptRecord,
    CancelAttempt,
    CheckpointCommitted,
    ConsoleSink,
    Deploy,
    DiscoverSplits,
    FailureCause,
    FileSource,
    FixedDelayRestart,
    JobEventKind,
    JobGraph,
    JobState,
    KafkaSource,
    KafkaStart,
    LeaderFailover,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    Operator,
    OperatorCounters,
    RestartStrategy,
    SourceState,
    SplitsDiscovered,
    SplitState,
    StragglerReplacement,
    SubtaskCounters,
    SubtaskEffort,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
    TriggerCheckpoint,
    Vertex,
    VertexParallelism,
)
from lockgate_proto.splits import UNBOUNDED

from tests.layouts import places
from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import FILES, JOB, SUBTASKS, ack, attempt, forward, source_state, subtask, word_count

NEW = (SlotOffer("tm-a", "a:1"), SlotOffer("tm-c", "c:1"))
LOST = (("read", 1), ("count", 1))
SURVIVORS = (("read", 0), ("count", 0))


def running(graph: JobGraph | None = None) -> Driver:
    return Driver(graph or forward()).run()


def lose(driver: Driver, name: str = "tm-b") -> None:
    driver.give(events.TaskManagerLost(name, "its process ended"))


def request(driver: Driver) -> effects.RequestSlots:
    """The request for slots that follows a failure."""
    driver.tick(1_000)
    return driver.one(effects.RequestSlots)


def restarted(driver: Driver, slots: tuple[SlotOffer, ...] = NEW) -> None:
    """From the loss of tm-b to the deployment of what was lost."""
    lose(driver)
    driver.deploy(request(driver).request, slots)


def run_again(driver: Driver) -> None:
    for key in LOST:
        driver.report(SubtaskPhase.SUBTASK_RUNNING, key, 2)
    assert driver.state is JobState.RUNNING


def acknowledge(driver: Driver, checkpoint_id: int) -> None:
    for key in SUBTASKS:
        state = source_state(*key, (SplitState(f"file-{key[1]}", 3, 9),)) if key[0] == "read" else None
        driver.give(events.Acknowledged(ack(checkpoint_id, *key, 2 if key in LOST else 1, state)))


def found(driver: Driver, number: int, round_: int, *names: str, complete: bool = True) -> list[effects.Effect]:
    splits = tuple(SplitState(name, 0, 10) for name in names)
    return driver.give(events.SplitsFound(SplitsDiscovered(attempt(number), "read", splits, complete, round=round_)))


def test_only_what_is_lost_is_deployed_and_nothing_is_cancelled() -> None:
    driver = running()
    lose(driver)
    assert (driver.sent(CancelAttempt), driver.state) == ([], JobState.RESTARTING)
    assert request(driver) == effects.RequestSlots(JOB, 2, 2, ("tm-a", ""), keeps=(0,))
    assert driver.offer(2, NEW).record.slot_attempts == (1, 2)
    driver.give(events.AttemptPersisted(2))
    views = driver.master.status().subtasks
    assert {(view.vertex_id, view.subtask, view.attempt) for view in views} == {
        *((*key, 1) for key in SURVIVORS),
        *((*key, 2) for key in LOST),
    }
    ((name, deploy),) = driver.sent(Deploy)
    assert (name, deploy.attempt, deploy.beside) == ("tm-c", attempt(2), ())
    assert {key for key, place in places(deploy).items() if place} == set(LOST)
    run_again(driver)
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "only count-1, read-1 restart, 2 of 4 subtasks: task manager tm-b is lost: its process ended"
    ]


def test_on_a_task_manager_where_subtasks_run_on_the_new_ones_start_beside_them() -> None:
    driver = running()
    restarted(driver, (NEW[0], NEW[0]))
    ((name, deploy),) = driver.sent(Deploy)
    assert (name, deploy.beside) == ("tm-a", (1,))
    run_again(driver)
    driver.give(events.CancelRequested())
    assert {body.attempt for _, body in driver.sent(NotifyCheckpointComplete)} == set()
    driver.tick(10_000)
    cancelled = [
        (send.task_manager_id, send.body.attempt)
        for send in driver.all
        if isinstance(send, effects.Send) and isinstance(send.body, CancelAttempt)
    ]
    assert cancelled == [("tm-a", attempt(1)), ("tm-a", attempt(2))]


def test_a_job_whose_slots_are_connected_restarts_as_a_whole() -> None:
    driver = running(word_count())
    lose(driver)
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a"]
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "the whole job restarts: every subtask of 'count' reads from every subtask of 'read'"
    ]


def test_a_failed_subtask_restarts_its_slot_on_the_task_manager_where_the_others_run_on() -> None:
    driver = Driver(forward())
    driver.deploy(driver.recover().request, (NEW[0], NEW[0]))
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    driver.report(SubtaskPhase.SUBTASK_FAILED, ("count", 1), error="broke")
    ((name, cancel),) = driver.sent(CancelAttempt)
    assert (name, cancel.attempt, cancel.slots) == ("tm-a", attempt(1), (1,))
    driver.report(SubtaskPhase.SUBTASK_CANCELED, ("read", 1), 1)
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "only count-1, read-1 restart, 2 of 4 subtasks: count-1 on tm-a: broke"
    ]
    driver.deploy(request(driver).request, (NEW[0], NEW[0]))
    ((name, deploy),) = driver.sent(Deploy)
    assert (name, deploy.attempt, deploy.beside) == ("tm-a", attempt(2), (1,))
    run_again(driver)
    assert driver.gone("tm-a", 1) != []  # what runs on there is over, which is a failure


def test_what_a_cancelled_part_had_read_counts_as_read_again() -> None:
    driver = running()
    driver.fail()
    words = SubtaskReport(
        subtask("read", 0), SubtaskPhase.SUBTASK_CANCELED, counters=(OperatorCounters("source", records_out=70),)
    )
    driver.give(events.TaskManagerReport("tm-a", events.Reported(words)))
    survivor = SubtaskReport(
        subtask("read", 1), SubtaskPhase.SUBTASK_EXHAUSTED, counters=(OperatorCounters("source", records_out=30),)
    )
    driver.give(events.TaskManagerReport("tm-b", events.Reported(survivor)))
    driver.deploy(request(driver).request)
    status = driver.master.status()
    assert (status.records_read, status.records_read_again) == (30, 70)


def test_a_failure_of_no_subtask_in_particular_restarts_the_whole_job_which_says_why() -> None:
    driver = running()
    driver.gone("tm-a")
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a", "tm-b"]
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "the whole job restarts: no subtask is known to have failed alone"
    ]


def test_a_loss_while_a_part_restarts_restarts_the_whole_job() -> None:
    driver = running()
    lose(driver)
    request(driver)
    lose(driver, "tm-a")
    assert driver.state is JobState.RESTARTING
    assert driver.emitted(JobEventKind.RESTART_EXTENT)[-1] == "the whole job restarts: the job was WAITING_FOR_SLOTS"
    assert not request(driver).keeps


def test_what_is_lost_at_the_same_time_is_one_failure_for_the_restart_strategy() -> None:
    driver = running(forward(restart=RestartStrategy(FixedDelayRestart(attempts=1, delay_ms=50))))
    lose(driver)
    lose(driver, "tm-a")
    assert not driver.master.is_ending
    driver.deploy(request(driver).request, NEW)
    lose(driver, "tm-c")
    assert driver.master.is_ending


def test_subtasks_that_fail_alike_at_the_same_time_are_one_attempt_that_has_failed_so() -> None:
    """Otherwise the third failure would come in the second attempt, and end a job whose third may succeed."""
    driver = running()
    for number in range(1, ENOUGH):
        for key in (("count", 0), ("count", 1)):
            driver.report(SubtaskPhase.SUBTASK_FAILED, key, number, FailureCause.DATA_ERROR, "'x' is no INT")
        assert not driver.master.is_ending
        driver.deploy(request(driver).request, NEW)
        driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    driver.fail(FailureCause.DATA_ERROR, "'x' is no INT")
    assert driver.master.is_ending


def test_what_runs_on_does_not_go_on_for_long_without_checkpoints_while_the_part_waits_for_slots() -> None:
    """Sinks hold what no checkpoint has sealed, some of them in memory."""
    driver = running(forward(restart=RestartStrategy(FixedDelayRestart(attempts=1, delay_ms=50))))
    lose(driver)
    request(driver)
    driver.tick(PART_TIMEOUT_MS - 1)
    assert driver.sent(CancelAttempt) == []
    assert effects.WakeAt(driver.now + 1) in driver.last
    driver.tick(1)
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a"]
    assert not request(driver).keeps
    assert not driver.master.is_ending, "it has failed once"


@pytest.mark.parametrize("phase", [SubtaskPhase.SUBTASK_FAILED, SubtaskPhase.SUBTASK_CANCELED])
@pytest.mark.parametrize("is_deployed", [False, True])
def test_a_survivor_that_ends_while_the_part_is_deployed_ends_both(is_deployed: bool, phase: SubtaskPhase) -> None:
    """SUBTASK_CANCELED: a task manager that knows of no parts cancels all of the attempt, or replaces it."""
    driver = running()
    lose(driver)
    driver.offer(request(driver).request, NEW)
    if is_deployed:
        driver.give(events.AttemptPersisted(2))
    driver.report(phase, ("count", 0), 1)
    wanted = [("tm-a", attempt(1)), ("tm-c", attempt(2))][: 1 + is_deployed]
    assert [(name, body.attempt) for name, body in driver.sent(CancelAttempt)] == wanted
    driver.deploy(request(driver).request, NEW)
    assert {name: deploy.beside for name, deploy in driver.sent(Deploy)} == {"tm-a": (), "tm-c": ()}


def test_a_part_that_cannot_read_its_state_tries_again_alone() -> None:
    """What runs on goes on while the storage is away, but for no longer than without slots."""
    driver = running()
    restarted(driver)
    for number in range(2, 5):
        driver.report(SubtaskPhase.SUBTASK_FAILED, LOST[1], number, cause=FailureCause.STORAGE_AWAY, error="away")
        assert {name for name, _ in driver.sent(CancelAttempt)} == {"tm-c"}
        driver.tick(5_000)
        driver.deploy(driver.one(effects.RequestSlots).request, NEW)
        assert [name for name, _ in driver.sent(Deploy)] == ["tm-c"]
    for key in LOST:
        driver.report(SubtaskPhase.SUBTASK_RUNNING, key, 5)
    assert driver.state is JobState.RUNNING


def test_a_part_that_cannot_read_its_state_for_long_takes_the_others_along() -> None:
    driver = running()
    restarted(driver)
    driver.report(SubtaskPhase.SUBTASK_FAILED, LOST[1], 2, cause=FailureCause.STORAGE_AWAY, error="away")
    driver.tick(PART_TIMEOUT_MS)
    driver.tick(PART_TIMEOUT_MS)
    cancelled = [send for send in driver.all if isinstance(send, effects.Send) and isinstance(send.body, CancelAttempt)]
    assert ("tm-a", attempt(1)) in [(send.task_manager_id, send.body.attempt) for send in cancelled]


def test_storage_that_is_away_meanwhile_does_not_make_one_failure_two() -> None:
    driver = running(forward(restart=RestartStrategy(FixedDelayRestart(attempts=1, delay_ms=50))))
    restarted(driver)
    driver.report(SubtaskPhase.SUBTASK_FAILED, LOST[1], 2, cause=FailureCause.STORAGE_AWAY, error="away")
    driver.tick(5_000)
    driver.deploy(driver.one(effects.RequestSlots).request, NEW)
    driver.report(SubtaskPhase.SUBTASK_FAILED, LOST[1], 3, error="it could not begin")
    assert not driver.master.is_ending, "it has failed once"


def test_slots_elsewhere_than_what_runs_on_restart_the_whole_job() -> None:
    driver = running()
    lose(driver)
    driver.give(events.SlotsOffered(JOB, request(driver).request, (NEW[1], NEW[1])))
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a"]
    assert not driver.one(effects.RequestSlots).keeps


def test_a_rescale_while_a_part_restarts_restarts_the_whole_job() -> None:
    driver = running()
    lose(driver)
    request(driver)
    driver.give(events.RescaleRequested("r", (VertexParallelism("read", 1), VertexParallelism("count", 1)), 4))
    orders = driver.one(effects.PersistOrders).orders
    driver.give(events.OrdersPersisted(orders))
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a"]


# checkpoints


def test_a_checkpoint_in_progress_is_aborted_where_subtasks_run_on_and_cannot_complete_later() -> None:
    driver = running()
    number = driver.trigger()
    lose(driver)
    assert [name for name, _ in driver.sent(NotifyCheckpointAborted)] == ["tm-a"]
    restarted_request = request(driver).request
    driver.deploy(restarted_request, NEW)
    run_again(driver)
    for key in SUBTASKS:
        for began in (1, 2):
            driver.give(events.Acknowledged(ack(number, *key, began)))
            assert driver.of(effects.PersistCheckpoint) == []


def test_a_checkpoint_that_was_being_written_is_announced_where_subtasks_run_on_before_the_part_begins() -> None:
    driver = running()
    persist = driver.collect()
    lose(driver)
    driver.tick(1_000)
    assert driver.of(effects.RequestSlots) == []
    checkpoint = driver.persisted(persist)
    assert driver.sent(NotifyCheckpointComplete) == [
        ("tm-a", NotifyCheckpointComplete(attempt(1), checkpoint.checkpoint_id))
    ]
    driver.deploy(driver.one(effects.RequestSlots).request, NEW)
    ((_, deploy),) = driver.sent(Deploy)
    assert deploy.restored_checkpoint_id == checkpoint.checkpoint_id


def test_the_next_checkpoint_has_all_subtasks_each_in_the_attempt_in_which_it_began() -> None:
    driver = running()
    restarted(driver)
    run_again(driver)
    number = driver.trigger(2_000)
    assert [(name, body.attempt) for name, body in driver.sent(TriggerCheckpoint)] == [
        ("tm-a", attempt(1)),
        ("tm-c", attempt(2)),
    ]
    for key in SUBTASKS:
        driver.give(events.Acknowledged(ack(number, *key, 1 if key in LOST else 2)))
    assert driver.of(effects.PersistCheckpoint) == []  # none of these subtasks exists
    acknowledge(driver, number)
    assert driver.one(effects.PersistCheckpoint).metadata.attempt == 2


def test_a_loss_after_a_part_restarted_leaves_what_began_in_either_attempt() -> None:
    driver = running()
    restarted(driver)
    run_again(driver)
    lose(driver, "tm-a")
    driver.deploy(request(driver).request, (SlotOffer("tm-d", "d:1"), NEW[1]))
    ((name, deploy),) = driver.sent(Deploy)
    assert (name, deploy.attempt) == ("tm-d", attempt(3))
    assert {key for key, place in places(deploy).items() if place} == set(SURVIVORS)


# splits and counters


def test_splits_of_what_runs_on_are_not_given_out_again_and_those_of_the_part_are() -> None:
    driver = running()
    found(driver, 1, 1, "a", "b", "c", "d")
    shares = {
        body.subtask.subtask: [split.split for split in body.splits]
        for _, body in driver.sent(AssignSplits)
        if body.subtask
    }
    restarted(driver)
    ((name, body),) = driver.sent(DiscoverSplits)
    assert (name, body.attempt, body.round, list(body.known)) == ("tm-c", attempt(2), 2, sorted(shares[0]))
    run_again(driver)
    found(driver, 1, 1, "late")  # of the task manager that listed them before
    assert driver.sent(AssignSplits) == []
    found(driver, 2, 2, *shares[1])
    ((name, assigned),) = driver.sent(AssignSplits)
    assert (name, assigned.subtask) == ("tm-c", subtask("read", 1, 2))
    assert sorted(split.split for split in assigned.splits) == sorted(shares[1])


def beside(kind: FileSource | KafkaSource) -> Driver:
    """The job runs, and beside its parts a thin one with this source, in the first slot alone."""
    source = Operator(id="thin-source", kind=kind)
    thin = Vertex(id="thin", parallelism=1, operators=(source, Operator(id="print", kind=ConsoleSink())))
    graph = forward()
    driver = Driver(replace(graph, vertices=(*graph.vertices, thin)))
    driver.deploy(driver.recover().request)
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    driver.report(SubtaskPhase.SUBTASK_RUNNING, ("thin", 0))
    return driver


def test_an_answer_about_a_source_that_runs_on_counts_while_the_record_of_the_part_is_written() -> None:
    """It was asked for in the attempt before, and is not asked for again."""
    driver = beside(replace(FILES, continuous=True))
    lose(driver)
    driver.offer(request(driver).request, NEW)
    splits = SplitsDiscovered(attempt(1), "thin", (SplitState("new", 0, 10),), round=1)
    driver.give(events.SplitsFound(splits))
    ((name, assigned),) = driver.sent(AssignSplits)
    assert (name, assigned.subtask, assigned.splits) == ("tm-a", subtask("thin", 0, 1), splits.splits)
    driver.give(events.AttemptPersisted(2))
    assert {body.vertex_id for _, body in driver.sent(DiscoverSplits)} == {"read"}


def test_splits_in_the_snapshot_return_to_it_and_what_runs_on_keeps_its_place() -> None:
    driver = running()
    found(driver, 1, 1, "file-0", "file-1")
    checkpoint, _ = driver.complete()
    restarted(driver)
    ((_, deploy),) = driver.sent(Deploy)
    assert deploy.restored_checkpoint_id == checkpoint.checkpoint_id
    (state,) = [state for state in deploy.restore if state.vertex_id == "read"]
    handle = state.operators[0].handle
    assert handle is not None
    assert state.subtask == 1
    assert decode(SourceState, handle.inline).splits == (SplitState("file-1", 3, 9),)
    assert driver.sent(DiscoverSplits) == []  # each of the lists was complete in the snapshot


def test_partitions_of_a_lost_part_that_no_checkpoint_has_begin_again_where_they_began() -> None:
    """A lister takes a partition beside known ones for a new one, and would read it from its beginning."""
    driver = running(forward(KafkaSource("h:9", ("t",), KafkaStart.KAFKA_LATEST)))
    splits = tuple(SplitState(f"t/{number}", 50, UNBOUNDED) for number in range(2))
    driver.give(events.SplitsFound(SplitsDiscovered(attempt(1), "read", splits, round=1)))
    driver.give(events.AttemptPersisted(1))
    shares = {body.subtask.subtask: body.splits for _, body in driver.sent(AssignSplits) if body.subtask}
    restarted(driver)
    ((_, asked),) = driver.sent(DiscoverSplits)
    assert asked.known == ("t/0", "t/1")
    ((name, assigned),) = driver.sent(AssignSplits)
    assert (name, assigned.subtask, assigned.splits) == ("tm-c", subtask("read", 1, 2), shares[1])


def test_first_positions_that_come_while_the_record_of_a_part_is_written_are_written_next() -> None:
    """The record under way does not have them: its answer lets no split be assigned."""
    driver = beside(KafkaSource("h:9", ("t",)))
    lose(driver)
    assert driver.offer(request(driver).request, NEW).record.first_positions == ()
    splits = SplitsDiscovered(attempt(1), "thin", (SplitState("t/0", 7, UNBOUNDED),), round=1)
    driver.give(events.SplitsFound(splits))
    driver.give(events.AttemptPersisted(2))
    assert driver.sent(AssignSplits) == []
    assert [found.vertex_id for found in driver.one(effects.PersistAttempt).record.first_positions] == ["thin"]
    driver.give(events.AttemptPersisted(2))
    ((name, assigned),) = driver.sent(AssignSplits)
    assert (name, assigned.subtask, assigned.splits) == ("tm-a", subtask("thin", 0, 1), splits.splits)


@pytest.mark.parametrize("starting", list(KafkaStart))
def test_partitions_in_a_checkpoint_do_not_keep_a_part_from_restarting(starting: KafkaStart) -> None:
    driver = running(forward(KafkaSource("h:9", ("t",), starting)))
    driver.complete()
    restarted(driver)
    assert [name for name, _ in driver.sent(Deploy)] == ["tm-c"]


def test_only_what_the_lost_subtasks_had_read_is_read_again() -> None:
    driver = running()
    for key in SURVIVORS[:1] + LOST[:1]:
        counters = SubtaskCounters(subtask(*key), (OperatorCounters("source", records_out=100),))
        driver.give(events.CountersReported((counters,)))
    restarted(driver)
    run_again(driver)
    status = driver.master.status()
    assert (status.records_read, status.records_read_again, status.restarts) == (100, 100, 1)


def test_only_what_begins_is_in_the_trace_of_the_restart() -> None:
    driver = running()
    restarted(driver)
    run_again(driver)
    driver.report(SubtaskPhase.SUBTASK_EXHAUSTED, ("read", 0), 1, after_ms=9_000)  # not a start
    parts = [emit.parts for emit in driver.all if isinstance(emit, effects.Emit) and isinstance(emit.parts, Starts)]
    assert set(parts[-1].started_ms) == set(LOST)


def test_the_work_before_a_part_restarted_says_nothing_of_how_fast_the_others_are_now() -> None:
    """What runs on has had small records for long; now all have large ones, and none is slower than the others."""
    option = StragglerReplacement(factor=3.0, window_ms=4_000, pause_ms=10_000)
    driver = running(replace(forward(), straggler_replacement=option))
    driver.complete()
    restarted(driver)
    run_again(driver)
    for step in range(1, 40):
        efforts = (
            SubtaskEffort(100_000_000 + 190_000 * step, 10_000 + 10 * step, 100_000_000 + 1_000 * step, 0, 1_000),
            SubtaskEffort(190_000 * step, 10 * step, 1_000 * step, 0, 1_000),
        )
        counters = tuple(
            SubtaskCounters(subtask("count", index, index + 1), (), effort) for index, effort in enumerate(efforts)
        )
        driver.give(events.CountersReported(counters, (events.Spare("tm-d", "d:1", 1),)), 200)
    assert driver.emitted(JobEventKind.SUBTASK_MOVED) == []


# the end, and other leaders


def test_what_all_had_committed_is_not_in_doubt_when_the_job_is_cancelled_before_the_part_is_deployed() -> None:
    driver = running()
    checkpoint, _ = driver.complete()
    driver.commit(checkpoint.checkpoint_id)
    lose(driver)
    driver.offer(request(driver).request, NEW)
    driver.give(events.CancelRequested())
    driver.tick(10_000)
    assert driver.result().error == ""


def test_a_cancelled_job_does_not_wait_for_the_commit_of_what_is_lost() -> None:
    driver = running()
    checkpoint, _ = driver.complete()
    lose(driver)
    driver.give(events.CancelRequested())
    committed = CheckpointCommitted(subtask("count", 0), checkpoint.checkpoint_id)
    driver.give(events.Committed(committed))
    driver.gone("tm-a", 1)
    assert "count-1 on tm-b had not committed it" in driver.result().error


REATTACH = replace(forward(), leader_failover=LeaderFailover.LEADER_FAILOVER_REATTACH)
RECORD = AttemptRecord(2, ("tm-a", "tm-c"), 3, slot_attempts=(1, 2))


def progress(keys: tuple[tuple[str, int], ...], number: int) -> AttemptProgress:
    phase = SubtaskPhase.SUBTASK_RUNNING
    return AttemptProgress(attempt(number), tuple(SubtaskProgress(*key, phase=phase) for key in keys))


def test_a_new_leader_adopts_subtasks_that_began_in_several_attempts() -> None:
    driver = Driver(REATTACH)
    driver.give(events.StillRunning("tm-a", attempt(1), progress(SURVIVORS, 1)))
    driver.give(events.StillRunning("tm-c", attempt(2), progress(LOST, 2)))
    wanted = driver.recover(attempt=RECORD)
    assert driver.offer(wanted.request, NEW).record == replace(
        RECORD, token=7, addresses=driver.one(effects.PersistAttempt).record.addresses
    )
    driver.give(events.AttemptPersisted(2))
    assert (driver.state, driver.sent(Deploy)) == (JobState.RUNNING, [])


def test_a_new_leader_says_in_which_attempts_its_subtasks_may_still_run() -> None:
    """A task manager with none but earlier ones is waited for as well."""
    wanted = Driver(REATTACH).recover(attempt=RECORD)
    assert (wanted.running_since, wanted.running_attempt) == (1, 2)


def test_the_whole_job_restarts_from_a_checkpoint_of_another_parallelism() -> None:
    """Its state would move between slots, and what runs on has it already."""
    checkpoint, metadata = running().complete()
    shapes = tuple(replace(shape, parallelism=1) for shape in metadata.vertices)
    states = tuple(state for state in metadata.subtasks if state.subtask == 0)
    driver = Driver(forward()).run(
        attempt=AttemptRecord(1, ("tm-a",)),
        completed=(checkpoint,),
        metadata=replace(metadata, vertices=shapes, subtasks=states),
        next_checkpoint_id=2,
    )
    lose(driver)
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "the whole job restarts: its newest checkpoint was taken at another parallelism"
    ]


def test_a_new_leader_does_not_adopt_beside_a_subtask_whose_cancellation_was_lost() -> None:
    """It would hear what is meant for those that began with it, and commit what the newer one reads again."""
    driver = Driver(REATTACH)
    driver.give(events.StillRunning("tm-a", attempt(1), progress((*SURVIVORS, ("count", 1)), 1)))
    driver.give(events.StillRunning("tm-c", attempt(2), progress(LOST, 2)))
    wanted = driver.recover(attempt=RECORD)
    driver.deploy(wanted.request, NEW)
    assert driver.emitted(JobEventKind.ATTEMPT_NOT_ADOPTED) == [
        "another attempt begins: tm-a still runs count-1 of attempt 1, which has been replaced"
    ]
    assert {name: deploy.beside for name, deploy in driver.sent(Deploy)} == {"tm-a": (), "tm-c": ()}


def test_a_new_leader_adopts_although_a_task_manager_that_was_lost_is_back_with_what_was_replaced() -> None:
    driver = Driver(REATTACH)
    driver.give(events.StillRunning("tm-a", attempt(1), progress(SURVIVORS, 1)))
    driver.give(events.StillRunning("tm-b", attempt(1), progress(LOST, 1)))
    driver.give(events.StillRunning("tm-c", attempt(2), progress(LOST, 2)))
    wanted = driver.recover(attempt=RECORD)
    driver.offer(wanted.request, NEW)
    driver.give(events.AttemptPersisted(2))
    assert (driver.state, driver.emitted(JobEventKind.ATTEMPT_NOT_ADOPTED)) == (JobState.RUNNING, [])


def test_a_new_leader_that_cannot_adopt_them_cancels_each_where_it_ran() -> None:
    driver = Driver(REATTACH)
    driver.give(events.StillRunning("tm-a", attempt(1), progress(SURVIVORS, 1)))
    wanted = driver.recover(attempt=RECORD)
    elsewhere = (SlotOffer("tm-d", "d:1"), SlotOffer("tm-d", "d:1"))
    driver.deploy(wanted.request, elsewhere)
    assert [(name, body.attempt) for name, body in driver.sent(CancelAttempt)] == [
        ("tm-a", attempt(1)),
        ("tm-c", attempt(2)),
    ]
    assert driver.number == 3
