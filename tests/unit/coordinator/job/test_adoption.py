"""A new leader and an attempt that still runs: when it adopts it, and what it says to the task managers then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.stragglers import Stragglers
from lockgate_proto.messages import (
    AssignSplits,
    AttemptGone,
    AttemptProgress,
    AttemptRecord,
    CancelAttempt,
    CheckpointCommitted,
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    Deploy,
    DiscoverSplits,
    DrainSources,
    FailureCause,
    FixedDelayRestart,
    JobEventKind,
    JobGraph,
    JobOrders,
    JobState,
    LeaderFailover,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    OperatorCounters,
    RestartStrategy,
    SplitsDiscovered,
    SplitState,
    StopOrder,
    StragglerReplacement,
    SubtaskEffort,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
    TriggerCheckpoint,
    VertexParallelism,
)

from tests.unit.coordinator.driver import SLOTS, Driver
from tests.unit.coordinator.jobs import RECORD as JOB_RECORD
from tests.unit.coordinator.jobs import attempt, source_state, subtask, word_count

NUMBER = 1
RECORD = AttemptRecord(attempt=NUMBER, task_manager_ids=("tm-a", "tm-b"), restarts=2)
RUNNING, EXHAUSTED = SubtaskPhase.SUBTASK_RUNNING, SubtaskPhase.SUBTASK_EXHAUSTED
PLACES = {0: "tm-a", 1: "tm-b"}


def graph() -> JobGraph:
    return replace(word_count(), leader_failover=LeaderFailover.LEADER_FAILOVER_REATTACH)


def progress(index: int, phase: SubtaskPhase = RUNNING, **of_source: object) -> AttemptProgress:
    """Of a task manager that has subtask `index` of both vertices."""
    given = {"has_assigned": True, "complete": True, **of_source}
    source = SubtaskProgress("read", index, phase, committed_id=1, **given)  # type: ignore[arg-type]
    return AttemptProgress(attempt(NUMBER), (source, SubtaskProgress("count", index, phase, committed_id=1)))


def snapshot() -> tuple[CompletedCheckpoint, CheckpointMetadata]:
    """Checkpoint 1, completed in attempt 1: each source subtask has one split, and no more to come."""
    return Driver(graph()).run().complete()


class Successor(Driver):
    """A new leader that finds attempt 1, checkpoint 1, and ids used up to 3."""

    def __init__(
        self,
        next_id: int = 4,
        orders: JobOrders | None = None,
        graph_: JobGraph | None = None,
        record: AttemptRecord = RECORD,
    ) -> None:
        super().__init__(graph_ or graph(), token=8)
        checkpoint, metadata = snapshot()
        recovered = events.Recovered(record, (checkpoint,), metadata, next_id)
        self.give(recovered if orders is None else replace(recovered, orders=orders))
        self.request = self.one(effects.RequestSlots).request

    def hear(self, found: Iterable[tuple[int, AttemptProgress | None]]) -> None:
        """Task managers register."""
        for index, item in found:
            self.give(events.StillRunning(PLACES[index], attempt(NUMBER), item))

    def begin(self, slots: tuple[SlotOffer, ...] = SLOTS) -> int:
        """Slots are granted; the number of the attempt that begins."""
        return self.offer(self.request, slots).record.attempt

    def adopt(self, **of_source: object) -> None:
        """Everything runs where it was, and the record is rewritten."""
        self.hear((index, progress(index, **of_source)) for index in (0, 1))  # type: ignore[arg-type]
        assert self.begin() == NUMBER
        self.give(events.AttemptPersisted(NUMBER))

    @property
    def reasons(self) -> list[str]:
        return self.emitted(JobEventKind.ATTEMPT_NOT_ADOPTED)


def test_there_is_nothing_to_adopt_before_the_first_attempt_of_a_job_that_begins_from_a_savepoint() -> None:
    leader = Successor(record=AttemptRecord())
    assert leader.begin() == 1
    leader.give(events.AttemptPersisted(1))
    assert leader.sent(Deploy)
    assert leader.reasons == []


def test_an_attempt_that_runs_where_it_was_is_adopted_and_nothing_is_restarted() -> None:
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    record = leader.offer(leader.request).record
    assert (record.attempt, record.restarts, record.token) == (NUMBER, 2, 8)
    assert leader.state is JobState.ADOPTING
    assert not leader.of(effects.Send), "the record comes first"
    leader.give(events.AttemptPersisted(NUMBER))
    assert leader.state is JobState.RUNNING
    assert not leader.sent(Deploy)
    assert not leader.sent(CancelAttempt)
    assert leader.emitted(JobEventKind.ATTEMPT_ADOPTED) == ["attempt 1 continues: nothing is restarted"]
    assert leader.emitted(JobEventKind.ATTEMPT_DEPLOYED) == ["all 4 subtasks run"]
    assert leader.one(effects.PersistCheckpointId).checkpoint_id == 4, "at once: one of the dead leader may be overdue"


def test_the_newest_checkpoint_is_announced_again_and_later_ones_are_aborted_everywhere() -> None:
    leader = Successor()
    leader.adopt()
    assert leader.sent(NotifyCheckpointComplete) == [
        (name, NotifyCheckpointComplete(attempt(NUMBER), 1)) for name in ("tm-a", "tm-b")
    ]
    aborted = NotifyCheckpointAborted(attempt(NUMBER), 3, "its leader has failed", and_earlier=True)
    assert leader.sent(NotifyCheckpointAborted) == [("tm-a", aborted), ("tm-b", aborted)]


@pytest.mark.parametrize("has_output", [False, True])
def test_output_reported_to_the_dead_leader_is_an_event_of_the_next_one_too(has_output: bool) -> None:
    """Its client may wait for that event, which has died with the leader; and it comes once."""
    leader = Successor()
    known = progress(1)
    source, count = known.subtasks
    leader.hear([(0, progress(0)), (1, replace(known, subtasks=(source, replace(count, has_output=has_output))))])
    leader.begin()
    leader.give(events.AttemptPersisted(NUMBER))
    assert len(leader.emitted(JobEventKind.FIRST_COMMIT)) == has_output
    leader.give(events.Committed(CheckpointCommitted(subtask("count", 0), 1, has_output=True)))
    assert len(leader.emitted(JobEventKind.FIRST_COMMIT)) == 1


def test_however_many_checkpoints_have_begun_an_attempt_is_adopted_with_one_message_each() -> None:
    leader = Successor(next_id=1_000_000)
    leader.adopt()
    assert [body.checkpoint_id for _, body in leader.sent(NotifyCheckpointAborted)] == [999_999, 999_999]


def test_nothing_is_aborted_where_nothing_has_begun() -> None:
    leader = Successor(next_id=2)
    leader.adopt()
    assert not leader.sent(NotifyCheckpointAborted)


def test_only_a_job_that_may_be_adopted_waits_longer_for_its_task_managers() -> None:
    leader = Successor()
    request = next(effect for effect in leader.all if isinstance(effect, effects.RequestSlots))
    assert (request.grace_ms, request.running_attempt, request.running_grace_ms) == (500, NUMBER, 2_000)
    leader = Successor(graph_=word_count())
    request = next(effect for effect in leader.all if isinstance(effect, effects.RequestSlots))
    assert (request.grace_ms, request.running_attempt, request.running_grace_ms) == (500, 0, 0)


def test_a_new_leader_learns_where_the_task_managers_of_the_attempt_were_reached() -> None:
    leader = Successor()
    leader.adopt()
    record = next(effect.record for effect in leader.all if isinstance(effect, effects.PersistAttempt))
    assert {found.task_manager_id for found in record.addresses} == {"tm-a", "tm-b"}
    following = Successor(record=record)
    request = next(effect for effect in following.all if isinstance(effect, effects.RequestSlots))
    assert dict(request.addresses) == {found.task_manager_id: found.exchange_address for found in record.addresses}


def test_splits_that_a_dead_leader_has_assigned_are_not_assigned_again() -> None:
    leader = Successor()
    leader.adopt(complete=False, assigned=(SplitState("late", 0, 5),))
    assert not leader.sent(DiscoverSplits), "the snapshot says that all splits are assigned"

    checkpoint, metadata = snapshot()
    states = [
        source_state("read", state.subtask, (SplitState(f"file-{state.subtask}", 3, 9),), complete=False)
        if state.vertex_id == "read"
        else state
        for state in metadata.subtasks
    ]
    leader = Driver(graph(), token=8)  # type: ignore[assignment]
    request = leader.recover(RECORD, (checkpoint,), replace(metadata, subtasks=tuple(states)), 2).request
    late = progress(0, complete=False, assigned=(SplitState("late", 0, 5),))
    leader.give(events.StillRunning("tm-a", attempt(NUMBER), late))
    leader.give(events.StillRunning("tm-b", attempt(NUMBER), progress(1, complete=False)))
    leader.offer(request)
    leader.give(events.AttemptPersisted(NUMBER))
    ((name, discover),) = leader.sent(DiscoverSplits)
    assert (name, discover.known) == ("tm-a", ("file-0", "file-1", "late"))

    def answer(number: int) -> list[tuple[str, AssignSplits]]:
        splits = tuple(SplitState(split, 0, 9) for split in ("file-0", "late", "unseen"))
        found = SplitsDiscovered(attempt(NUMBER), "read", splits, complete=True, round=number)
        leader.give(events.SplitsFound(found))
        return leader.sent(AssignSplits)

    assert answer(1) == [], "that is the late answer to the dead leader"
    assigned = [split.split for _, body in answer(discover.round) for split in body.splits]
    assert assigned == ["unseen"]


def test_reports_between_registration_and_adoption_count_in_any_order() -> None:
    leader = Successor()
    for index, name in PLACES.items():
        for vertex in ("read", "count"):
            report = events.Reported(SubtaskReport(subtask(vertex, index, NUMBER), EXHAUSTED))
            committed = events.Committed(CheckpointCommitted(subtask(vertex, index, NUMBER), 3))
            leader.give(events.TaskManagerReport(name, report))
            leader.give(events.TaskManagerReport(name, committed))
        leader.hear([(index, progress(index))])
    assert leader.begin() == NUMBER
    leader.give(events.AttemptPersisted(NUMBER))
    assert leader.state is JobState.FINISHING
    leader.report(RUNNING, ("read", 0))
    assert leader.state is JobState.FINISHING, "a late report takes nothing back"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([(0, progress(0))], "no task manager has reported how far read-1 is"),
        ([(0, progress(0)), (1, None)], "no task manager has reported how far read-1 is"),
        ([(0, progress(0)), (1, progress(0))], "no task manager has reported how far read-1 is"),
        (
            [(0, progress(0)), (1, progress(1, SubtaskPhase.SUBTASK_PHASE_UNSPECIFIED))],
            "read-1 had not started",
        ),
        ([(0, progress(0)), (1, progress(1, SubtaskPhase.SUBTASK_FAILED))], "read-1 has failed"),
        ([(0, progress(0)), (1, replace(progress(1), attempt=attempt(2)))], "no task manager has reported"),
    ],
)
def test_a_gap_leads_to_another_attempt_and_the_reason_is_reported(
    found: list[tuple[int, AttemptProgress | None]], reason: str
) -> None:
    leader = Successor()
    leader.hear(found)
    assert leader.begin() == NUMBER + 1
    assert leader.reasons[0].startswith(f"another attempt begins: {reason}")
    leader.give(events.AttemptPersisted(NUMBER + 1))
    assert [name for name, _ in leader.sent(Deploy)] == ["tm-a", "tm-b"]
    assert leader.sent(Deploy)[0][1].restored_checkpoint_id == 1


def test_a_lost_task_manager_or_another_place_leads_to_another_attempt() -> None:
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    leader.give(events.TaskManagerLost("tm-b", "its process has ended"))
    leader.hear([(1, None)])  # its successor, under the same id
    assert leader.begin() == NUMBER + 1
    assert leader.reasons == ["another attempt begins: a task manager of the attempt is gone"]
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    assert leader.begin((SLOTS[0], SlotOffer("tm-c", "c:1"))) == NUMBER + 1
    assert leader.reasons == ["another attempt begins: tm-b has not come back in time, or has no slot for it any more"]
    leader.give(events.AttemptPersisted(NUMBER + 1))
    assert [name for name, _ in leader.sent(CancelAttempt)] == ["tm-b"]


def test_counters_of_an_adopted_attempt_are_those_of_its_subtasks_at_once() -> None:
    leader = Successor()
    for index in (0, 1):
        counted = (OperatorCounters("source", 0, 40), OperatorCounters("sink", 7, 0))
        item = progress(index)
        leader.hear(
            [(index, replace(item, subtasks=tuple(replace(subtask, counters=counted) for subtask in item.subtasks)))]
        )
    leader.begin()
    status = leader.master.status()
    assert status.state is JobState.ADOPTING
    assert status.records_read == 160


def test_an_attempt_that_has_ended_somewhere_is_not_adopted() -> None:
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    gone = events.Gone("tm-a", AttemptGone(attempt=attempt(NUMBER)))
    leader.give(events.TaskManagerReport("tm-a", gone))
    assert leader.begin() == NUMBER + 1


def test_a_recorded_rescale_leads_to_another_attempt_at_its_parallelism() -> None:
    leader = Successor(orders=JobOrders(parallelism=(VertexParallelism("count", 1),)))
    leader.hear((index, progress(index)) for index in (0, 1))
    assert leader.begin() == NUMBER + 1
    assert leader.reasons == ["another attempt begins: the job has another parallelism now"]


def test_a_rescale_that_is_being_written_leads_to_another_attempt() -> None:
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    leader.give(events.RescaleRequested("request", (VertexParallelism("count", 1),), 0))
    assert leader.begin() == NUMBER + 1
    assert leader.reasons == ["another attempt begins: the job is being rescaled"]


@pytest.mark.parametrize("drain", [False, True])
def test_a_recorded_stop_goes_on_in_the_adopted_attempt(drain: bool) -> None:
    leader = Successor(orders=JobOrders(stop=StopOrder(drain, after_checkpoint_id=1)))
    leader.adopt()
    assert leader.state is JobState.RUNNING
    if drain:
        assert {name for name, _ in leader.sent(DrainSources)} == {"tm-a", "tm-b"}
        leader.all_report(EXHAUSTED)
        assert leader.state is JobState.FINISHING
    else:  # the one that an adopted attempt takes at once comes first
        leader.give(events.CheckpointIdPersisted(4))
        leader.acknowledge(4)
        leader.persisted(leader.one(effects.PersistCheckpoint))
    begun = [effect.checkpoint_id for effect in leader.all if isinstance(effect, effects.PersistCheckpointId)]
    leader.give(events.CheckpointIdPersisted(begun[-1]))
    ((_, trigger), *_) = leader.sent(TriggerCheckpoint)
    assert (trigger.kind, trigger.terminal) == (CheckpointKind.SAVEPOINT, drain)
    leader.acknowledge(trigger.checkpoint_id)
    leader.persisted(leader.one(effects.PersistCheckpoint))
    leader.commit(trigger.checkpoint_id)
    assert leader.result().outcome == "FINISHED"


def test_an_attempt_whose_stop_has_been_carried_out_is_not_adopted() -> None:
    checkpoint, metadata = snapshot()
    savepoint = replace(checkpoint, kind=CheckpointKind.SAVEPOINT)
    leader = Driver(graph(), token=8)
    orders = JobOrders(stop=StopOrder(False, after_checkpoint_id=0))
    leader.give(events.Recovered(RECORD, (savepoint,), replace(metadata, kind=CheckpointKind.SAVEPOINT), 2, orders))
    request = leader.one(effects.RequestSlots).request
    for index, name in PLACES.items():
        leader.give(events.StillRunning(name, attempt(NUMBER), progress(index)))
    assert leader.offer(request).record.attempt == NUMBER + 1
    assert leader.emitted(JobEventKind.ATTEMPT_NOT_ADOPTED) == [
        "another attempt begins: the savepoint with which it stops is complete"
    ]


@pytest.mark.parametrize(
    ("in_record", "in_graph", "adopts"),
    [
        (LeaderFailover.LEADER_FAILOVER_REATTACH, LeaderFailover.LEADER_FAILOVER_UNSPECIFIED, True),
        (LeaderFailover.LEADER_FAILOVER_REATTACH, LeaderFailover.LEADER_FAILOVER_RESTART, False),
        (LeaderFailover.LEADER_FAILOVER_UNSPECIFIED, LeaderFailover.LEADER_FAILOVER_REATTACH, True),
        (LeaderFailover.LEADER_FAILOVER_UNSPECIFIED, LeaderFailover.LEADER_FAILOVER_UNSPECIFIED, False),
    ],
)
def test_a_job_whose_graph_does_not_say_keeps_the_default_of_its_submission(
    in_record: LeaderFailover, in_graph: LeaderFailover, adopts: bool
) -> None:
    """The last one was submitted before reattach was the default."""
    stored = replace(JOB_RECORD, leader_failover=in_record)
    leader = Driver(replace(word_count(), leader_failover=in_graph), record=stored, token=8)
    checkpoint, metadata = snapshot()
    request = leader.recover(RECORD, (checkpoint,), metadata, 2).request
    for index, name in PLACES.items():
        leader.give(events.StillRunning(name, attempt(NUMBER), progress(index)))
    assert leader.offer(request).record.attempt == NUMBER + (not adopts)


def test_a_job_that_does_not_want_it_is_restarted_and_nothing_is_said() -> None:
    leader = Successor(graph_=word_count())
    leader.hear((index, progress(index)) for index in (0, 1))
    assert leader.begin() == NUMBER + 1
    assert leader.reasons == []


def test_a_failure_while_the_record_is_rewritten_restarts_the_job_and_cancels_what_ran() -> None:
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    assert leader.begin() == NUMBER
    leader.give(events.TaskManagerLost("tm-b", "its process has ended"))
    assert leader.state is JobState.RESTARTING
    leader.tick(60_000)
    leader.request = leader.one(effects.RequestSlots).request
    assert leader.begin((SLOTS[0], SlotOffer("tm-c", "c:1"))) == NUMBER + 1
    leader.give(events.AttemptPersisted(NUMBER + 1))
    assert {name for name, _ in leader.sent(Deploy)} == {"tm-a", "tm-c"}
    assert [name for name, _ in leader.sent(CancelAttempt)] == ["tm-b"]


def test_a_registration_that_is_repeated_does_not_cancel_the_adopted_attempt() -> None:
    leader = Successor()
    leader.adopt()
    leader.hear([(0, progress(0))])
    assert not leader.sent(CancelAttempt)


def test_a_storage_that_is_away_at_the_takeover_restarts_nothing() -> None:
    leader = Driver(graph(), token=8)
    checkpoint, metadata = snapshot()
    leader.give(events.RecoveryFailed("the storage is away", True, RECORD))
    for index, name in PLACES.items():
        leader.give(events.StillRunning(name, attempt(NUMBER), progress(index)))
    assert not leader.of(effects.Send), "nothing is decided before the records are read"
    leader.tick(60_000)
    leader.give(events.Recovered(RECORD, (checkpoint,), metadata, 4))
    assert leader.offer(leader.one(effects.RequestSlots).request).record.attempt == NUMBER


def test_an_attempt_that_was_replaced_is_cancelled_once_the_snapshot_can_be_read() -> None:
    """Its task manager registers while the storage is away: it was cut off when attempt 1 was replaced."""
    leader = Driver(graph(), token=8)
    checkpoint, metadata = snapshot()
    record = replace(RECORD, attempt=2)
    leader.give(events.RecoveryFailed("the storage is away", True, record))
    for name in ("tm-x", "tm-y"):
        leader.give(events.StillRunning(name, attempt(1), progress(0)))
    leader.give(events.TaskManagerLost("tm-y", "its process has ended"))
    leader.tick(60_000)
    assert leader.sent(CancelAttempt) == []
    leader.give(events.Recovered(record, (checkpoint,), metadata, 4))
    assert leader.sent(CancelAttempt) == [("tm-x", CancelAttempt(attempt(1), "this attempt is over"))]
    leader.tick()
    assert leader.sent(CancelAttempt) == []


def test_a_repeated_registration_makes_up_for_reports_that_were_lost() -> None:
    leader = Successor()
    leader.adopt()
    leader.hear((index, progress(index, EXHAUSTED)) for index in (0, 1))
    assert leader.state is JobState.FINISHING


def test_failures_of_adopted_attempts_at_different_records_are_not_taken_for_one() -> None:
    """Three leaders die; each adopted attempt has gone further, and fails with the same words."""
    job = replace(graph(), restart=RestartStrategy(FixedDelayRestart(0, 100)))
    record = RECORD
    for term in range(3):
        (checkpoint, metadata), number = snapshot(), 10 * (term + 1)
        leader = Driver(job, token=8 + term)
        found = replace(checkpoint, checkpoint_id=number), replace(metadata, checkpoint_id=number)
        leader.give(events.Recovered(record, (found[0],), found[1], number + 1))
        request = leader.one(effects.RequestSlots).request
        for index, name in PLACES.items():
            there = replace(progress(index), attempt=attempt(record.attempt))
            leader.give(events.StillRunning(name, attempt(record.attempt), there))
        assert leader.offer(request).record.attempt == record.attempt
        leader.give(events.AttemptPersisted(record.attempt))
        leader.fail(FailureCause.DATA_ERROR, "division by zero", after_ms=100_000)
        assert not leader.master.is_ending, leader.master.status().error
        leader.tick(60_000)
        record = leader.offer(leader.one(effects.RequestSlots).request).record


def test_a_late_error_of_a_listing_for_the_dead_leader_does_not_fail_the_job() -> None:
    leader = Successor()
    leader.adopt()  # all splits are known: this leader has asked for nothing
    late = SplitsDiscovered(attempt(NUMBER), "read", error="no such bucket", cause=FailureCause.USER_ERROR)
    leader.give(events.TaskManagerReport("tm-a", events.SplitsFound(late)))
    assert leader.state is JobState.RUNNING


def test_the_history_does_not_say_that_an_attempt_continues_before_that_is_certain() -> None:
    leader = Successor()
    leader.hear((index, progress(index)) for index in (0, 1))
    leader.begin()
    leader.report(SubtaskPhase.SUBTASK_FAILED, ("count", 0), number=NUMBER, cause=FailureCause.FAULT, error="x")
    assert leader.emitted(JobEventKind.ATTEMPT_ADOPTED) == []
    assert {name for name, _ in leader.sent(CancelAttempt)} == {"tm-a", "tm-b"}, "what runs is cancelled at once"


def test_the_first_stretch_of_an_adopted_attempt_is_not_its_whole_life() -> None:
    """For a day 1 us a record, now ten times that on every subtask alike: none of them is slow."""
    watch = Stragglers(StragglerReplacement(factor=2.0, window_ms=60_000, pause_ms=1_000))
    places = {("read", index): SlotOffer(f"tm-{index}", f"h{index}:1") for index in range(3)}
    watch.running(places, 0, is_adopted=True)
    for second in range(200):
        for key in places:
            busy_us, batches = 86_400_000_000 + 900_000 * second, 1_000_000 + 5 * second
            effort = SubtaskEffort(busy_us, batches, 86_400_000_000 + 90_000 * second, 0, 0)
            watch.reported(key, effort, 1_000 * (second + 1) + key[1])
        assert watch.look((events.Spare("tm-z", "hz:1", 2),), 1_000 * (second + 1) + 5) is None
