"""SubtaskMachine: the life of a subtask, and every message that is late, doubled, out of order or foreign."""

from __future__ import annotations

from itertools import pairwise

import pytest
from lockgate_common.story import IllegalTransition
from lockgate_proto.messages import AttemptId, Barrier, FailureCause, SubtaskPhase, SubtaskState
from lockgate_taskmanager.barrier.events import Aligned, AlignmentAborted, Overtaken
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.checkpoints import REMEMBERED
from lockgate_taskmanager.task.machine import ALLOWED, LIVE, LifeCycle, SubtaskMachine

ME = AttemptId("job", "run", 3)
OLD = AttemptId("job", "run", 2)
STATE = SubtaskState("v", 0)
RUNNING = do.Report(SubtaskPhase.SUBTASK_RUNNING)


def _source() -> SubtaskMachine:
    machine = SubtaskMachine(ME, is_source=True)
    machine.handle(on.Started(), 0)
    assert machine.handle(on.Opened(), 0) == [RUNNING]
    return machine


def _inner() -> SubtaskMachine:
    machine = SubtaskMachine(ME, is_source=False)
    machine.handle(on.Started(), 0)
    assert machine.handle(on.Opened(), 0) == []
    return machine


def _trigger(number: int, attempt: AttemptId = ME) -> on.TriggerReceived:
    return on.TriggerReceived(attempt, Barrier(number))


def _acked(machine: SubtaskMachine, number: int) -> None:
    machine.handle(_trigger(number), 0)
    machine.handle(on.SnapshotTaken(number, 5), 0)
    assert machine.handle(on.UploadDone(number, STATE, 1), 0) == [do.Acknowledge(number, STATE, 5, 1, 0)]


def test_a_whole_checkpoint_in_its_order() -> None:
    machine = _source()
    barrier = Barrier(1, triggered_unix_ms=9)
    assert machine.handle(on.TriggerReceived(ME, barrier), 100) == [do.TakeSnapshot(1)]
    assert machine.handle(on.SnapshotTaken(1, 250), 101) == [do.ForwardBarrier(barrier), do.StartUpload(1)]
    assert machine.handle(on.UploadDone(1, STATE, 30), 131) == [do.Acknowledge(1, STATE, 250, 30, 0)]
    assert machine.handle(on.CompleteReceived(ME, 1), 140) == [do.Commit(1)]
    assert machine.handle(on.CommitDone(1), 141) == [do.ReportCommitted(1)]


def test_the_leader_is_notified_whether_a_commit_had_output() -> None:
    machine = _source()
    _acked(machine, 1)
    machine.handle(on.CompleteReceived(ME, 1), 0)
    assert machine.handle(on.CommitDone(1, has_output=True), 0) == [do.ReportCommitted(1, has_output=True)]


def test_a_snapshot_builds_on_the_newest_complete_checkpoint_unless_it_is_to_be_full() -> None:
    machine = _source()
    _acked(machine, 1)
    machine.handle(on.CompleteReceived(ME, 1), 0)
    machine.handle(on.CommitDone(1), 0)
    for number, completed_id, base_id in ((2, 1, 1), (3, 0, 0)):
        trigger = on.TriggerReceived(ME, Barrier(number, completed_id=completed_id))
        assert machine.handle(trigger, 0) == [do.TakeSnapshot(number, base_id)]
        machine.handle(on.SnapshotTaken(number, 5), 0)


@pytest.mark.parametrize("end", [on.CompleteReceived(ME, 1), on.AbortReceived(ME, 1), on.UploadFailed(1, "full")])
def test_a_source_that_stops_the_world_reads_on_when_its_checkpoint_has_ended(end: on.Event) -> None:
    machine = SubtaskMachine(ME, is_source=True, pauses_source=True)
    machine.handle(on.Started(), 0)
    machine.handle(on.Opened(), 0)
    assert not machine.is_halted
    machine.handle(_trigger(1), 0)
    machine.handle(on.SnapshotTaken(1, 5), 0)
    if not isinstance(end, on.UploadFailed):
        machine.handle(on.UploadDone(1, STATE, 1), 0)
    assert machine.is_halted
    machine.handle(end, 0)
    if isinstance(end, on.CompleteReceived):
        assert machine.is_halted, "what is complete is shown first"
        machine.handle(on.CommitDone(1), 0)
    assert not machine.is_halted


def test_other_sources_and_inner_subtasks_are_never_halted() -> None:
    source, inner = _source(), SubtaskMachine(ME, is_source=False, pauses_source=True)
    source.handle(_trigger(1), 0)
    inner.handle(on.Started(), 0)
    inner.handle(on.Opened(), 0)
    inner.handle(Aligned(Barrier(1), 0), 0)
    assert not source.is_halted
    assert not inner.is_halted


def test_alignment_time_counts_from_the_first_barrier() -> None:
    machine = _inner()
    machine.handle(on.ElementProcessed(), 0)
    machine.handle(Aligned(Barrier(1), 100), 140)
    machine.handle(on.SnapshotTaken(1, 1), 140)
    assert machine.handle(on.UploadDone(1, STATE, 2), 150) == [do.Acknowledge(1, STATE, 1, 2, 40)]


def test_an_inner_subtask_runs_from_its_first_element_and_says_so_once() -> None:
    machine = _inner()
    assert machine.state is LifeCycle.STARTING
    assert machine.handle(on.ElementProcessed(), 0) == [RUNNING]
    assert machine.handle(on.ElementProcessed(), 0) == []


def test_a_barrier_before_any_record_starts_an_inner_subtask() -> None:
    assert _inner().handle(Aligned(Barrier(1), 0), 0) == [RUNNING, do.TakeSnapshot(1)]


def test_end_of_input_before_any_record_starts_flushes_and_exhausts() -> None:
    machine = _inner()
    assert machine.handle(on.InputExhausted(), 0) == [RUNNING, do.Flush()]
    assert machine.handle(on.Flushed(), 0) == [do.ForwardEnd(), do.Report(SubtaskPhase.SUBTASK_EXHAUSTED)]
    assert machine.state is LifeCycle.EXHAUSTED


def test_end_of_input_twice_flushes_once() -> None:
    machine = _source()
    machine.handle(on.InputExhausted(), 0)
    assert machine.handle(on.InputExhausted(), 0) == []
    machine.handle(on.Flushed(), 0)
    assert machine.handle(on.InputExhausted(), 0) == []


def test_an_exhausted_subtask_still_takes_part_in_checkpoints() -> None:
    machine = _source()
    machine.handle(on.InputExhausted(), 0)
    machine.handle(on.Flushed(), 0)
    _acked(machine, 1)
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == [do.Commit(1)]


def test_a_trigger_twice_is_ignored() -> None:
    machine = _source()
    machine.handle(_trigger(1), 0)
    assert machine.handle(_trigger(1), 0) == []


def test_a_late_trigger_of_an_older_checkpoint_is_ignored() -> None:
    machine = _source()
    machine.handle(_trigger(2), 0)
    assert machine.handle(_trigger(1), 0) == []


def test_a_trigger_of_another_attempt_is_ignored() -> None:
    assert _source().handle(_trigger(1, OLD), 0) == []


def test_a_trigger_that_arrives_after_its_abort_is_ignored() -> None:
    machine = _source()
    machine.handle(on.AbortReceived(ME, 1), 0)
    assert machine.handle(_trigger(1), 0) == []
    assert machine.handle(_trigger(2), 0) == [do.TakeSnapshot(2)]


def test_a_trigger_while_opening_is_declined_once() -> None:
    machine = SubtaskMachine(ME, is_source=True)
    machine.handle(on.Started(), 0)
    (declined,) = machine.handle(_trigger(1), 0)
    assert isinstance(declined, do.Decline)
    assert machine.handle(_trigger(1), 0) == []


def test_a_trigger_is_nothing_for_an_inner_subtask() -> None:
    machine = _inner()
    machine.handle(on.ElementProcessed(), 0)
    assert machine.handle(_trigger(1), 0) == []


def test_no_ack_before_the_upload_and_none_without_it() -> None:
    machine = _source()
    machine.handle(_trigger(1), 0)
    effects = machine.handle(on.SnapshotTaken(1, 1), 0)
    assert not any(isinstance(effect, do.Acknowledge) for effect in effects)
    assert machine.handle(on.UploadFailed(1, "disk full"), 0) == [do.Decline(1, "disk full")]
    assert machine.handle(on.UploadDone(1, STATE, 1), 0) == []


def test_a_failed_freeze_is_declined_and_not_forwarded() -> None:
    machine = _source()
    machine.handle(_trigger(1), 0)
    assert machine.handle(on.SnapshotFailed(1, "too large"), 0) == [do.Decline(1, "too large")]
    assert machine.handle(_trigger(2), 0) == [do.TakeSnapshot(2)]


def test_an_upload_that_ends_twice_is_acknowledged_once() -> None:
    machine = _source()
    _acked(machine, 1)
    assert machine.handle(on.UploadDone(1, STATE, 1), 0) == []


def test_complete_before_the_own_ack_does_not_commit() -> None:
    machine = _source()
    machine.handle(_trigger(1), 0)
    machine.handle(on.SnapshotTaken(1, 1), 0)
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == []


def test_complete_of_an_unknown_checkpoint_does_not_commit() -> None:
    assert _source().handle(on.CompleteReceived(ME, 7), 0) == []


def test_complete_of_another_attempt_does_not_commit() -> None:
    machine = _source()
    _acked(machine, 1)
    assert machine.handle(on.CompleteReceived(OLD, 1), 0) == []


def test_complete_twice_commits_once() -> None:
    machine = _source()
    _acked(machine, 1)
    machine.handle(on.CompleteReceived(ME, 1), 0)
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == []
    machine.handle(on.CommitDone(1), 0)
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == []


def test_complete_out_of_order_commits_the_newer_one_only() -> None:
    machine = _source()
    _acked(machine, 1)
    _acked(machine, 2)
    assert machine.handle(on.CompleteReceived(ME, 2), 0) == [do.DropSnapshot(1), do.Commit(2)]
    machine.handle(on.CommitDone(2), 0)
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == []


def test_an_aborted_checkpoint_is_never_committed() -> None:
    machine = _source()
    _acked(machine, 1)
    assert machine.handle(on.AbortReceived(ME, 1), 0) == [do.StopAlignment(1), do.DropSnapshot(1)]
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == []


def test_an_upload_that_ends_after_the_abort_is_not_acknowledged() -> None:
    machine = _source()
    machine.handle(_trigger(1), 0)
    machine.handle(on.SnapshotTaken(1, 1), 0)
    late = do.Decline(1, "its snapshot was still being stored", is_storage=True)
    assert machine.handle(on.AbortReceived(ME, 1), 0) == [late, do.StopAlignment(1), do.DropSnapshot(1)]
    assert machine.handle(on.AbortReceived(ME, 1), 0) == [do.StopAlignment(1), do.DropSnapshot(1)]
    assert machine.handle(on.UploadDone(1, STATE, 1), 0) == []
    assert machine.handle(on.UploadFailed(1, "x"), 0) == []


def test_an_abort_of_another_attempt_changes_nothing() -> None:
    machine = _source()
    _acked(machine, 1)
    assert machine.handle(on.AbortReceived(OLD, 1), 0) == []
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == [do.Commit(1)]


def test_an_abort_with_all_earlier_ones_drops_each_of_them_and_spares_what_is_being_committed() -> None:
    machine = _source()
    for number in (1, 2, 3):
        _acked(machine, number)
    machine.handle(on.CompleteReceived(ME, 1), 0)
    abort = on.AbortReceived(ME, 7, and_earlier=True)
    release = do.StopAlignment(7, and_earlier=True)
    assert machine.handle(abort, 0) == [release, do.DropSnapshot(2), do.DropSnapshot(3)]
    assert machine.handle(on.CommitDone(1), 0) == [do.ReportCommitted(1)]
    assert machine.handle(on.CompleteReceived(ME, 3), 0) == []
    assert machine.handle(_trigger(7), 0) == [], "a trigger that arrives late"
    assert machine.handle(_trigger(8), 0) == [do.TakeSnapshot(8, 0, False)]
    assert machine.handle(abort, 0) == [release], "the eighth goes on"
    assert machine.handle(on.AbortReceived(OLD, 9, and_earlier=True), 0) == []


def test_an_abort_during_the_commit_does_not_take_it_back() -> None:
    machine = _source()
    _acked(machine, 1)
    machine.handle(on.CompleteReceived(ME, 1), 0)
    assert machine.handle(on.AbortReceived(ME, 1), 0) == []
    assert machine.handle(on.CommitDone(1), 0) == [do.ReportCommitted(1)]


def test_a_lost_alignment_is_declined_once() -> None:
    machine = _inner()
    machine.handle(on.ElementProcessed(), 0)
    assert machine.handle(AlignmentAborted(1, "overtaken"), 0) == [do.Decline(1, "overtaken")]
    assert machine.handle(AlignmentAborted(1, "overtaken"), 0) == []
    assert machine.handle(Aligned(Barrier(1), 0), 0) == []


def test_acknowledged_checkpoints_without_an_end_are_forgotten_in_time() -> None:
    machine = _source()
    for number in range(1, REMEMBERED + 2):
        _acked(machine, number)
    assert machine.handle(on.CompleteReceived(ME, 1), 0) == []
    assert do.Commit(REMEMBERED + 1) in machine.handle(on.CompleteReceived(ME, REMEMBERED + 1), 0)


def test_the_first_rows_at_a_sink_are_reported_once() -> None:
    machine = _source()
    assert machine.handle(on.SinkReached(77), 0) == [do.ReportFirstRecord(77)]
    assert machine.handle(on.SinkReached(78), 0) == []


def test_cancel_closes_and_then_reports() -> None:
    machine = _source()
    assert machine.handle(on.CancelRequested(), 0) == [do.Close()]
    assert machine.handle(on.CancelRequested(), 0) == []
    assert machine.handle(on.Closed(), 0) == [do.Report(SubtaskPhase.SUBTASK_CANCELED)]
    assert machine.state is LifeCycle.CANCELED


def test_a_failure_is_reported_before_anything_is_closed() -> None:
    machine = _source()
    report = do.Report(SubtaskPhase.SUBTASK_FAILED, FailureCause.USER_ERROR, "no column x")
    assert machine.handle(on.Failed(FailureCause.USER_ERROR, "no column x"), 0) == [report, do.Close()]
    assert machine.handle(on.Closed(), 0) == []
    assert machine.state is LifeCycle.FAILED


def test_a_failure_while_canceling_is_not_reported() -> None:
    machine = _source()
    machine.handle(on.CancelRequested(), 0)
    assert machine.handle(on.Failed(FailureCause.FAULT, "x"), 0) == []


def test_cancel_after_a_failure_is_ignored() -> None:
    machine = _source()
    machine.handle(on.Failed(FailureCause.FAULT, "x"), 0)
    assert machine.handle(on.CancelRequested(), 0) == []


@pytest.mark.parametrize(
    "event",
    [
        _trigger(2),
        on.SnapshotTaken(1, 1),
        on.UploadDone(1, STATE, 1),
        on.CompleteReceived(ME, 1),
        on.AbortReceived(ME, 1),
        on.CommitDone(1),
        on.InputExhausted(),
        on.SinkReached(1),
        AlignmentAborted(5, "x"),
        on.Opened(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_more_happens_while_canceling(event: on.Event) -> None:
    machine = _source()
    machine.handle(_trigger(1), 0)
    machine.handle(on.CancelRequested(), 0)
    assert machine.handle(event, 0) == []


def test_an_impossible_step_raises_with_the_story() -> None:
    machine = _source()
    with pytest.raises(IllegalTransition, match=r"RUNNING -> OPENING(.|\n)*Started\n(.|\n)*Opened\n(.|\n)*Started"):
        machine.handle(on.Started(), 0)


def test_closing_without_ending_raises() -> None:
    with pytest.raises(IllegalTransition):
        _source().handle(on.Closed(), 0)


def test_every_live_state_can_be_cancelled_and_can_fail() -> None:
    for state in LIVE:
        assert {LifeCycle.CANCELING, LifeCycle.FAILING} <= ALLOWED[state]
    assert set(ALLOWED) == set(LifeCycle)


def test_the_happy_path_is_allowed() -> None:
    path = [LifeCycle.CREATED, LifeCycle.OPENING, LifeCycle.STARTING, LifeCycle.RUNNING, LifeCycle.FLUSHING]
    assert all(after in ALLOWED[before] for before, after in pairwise([*path, LifeCycle.EXHAUSTED]))


def test_an_unaligned_snapshot_is_recorded_before_its_barrier_is_forwarded() -> None:
    machine = _inner()
    barrier = Barrier(1, unaligned=True)
    taken = machine.handle(Overtaken(barrier, 3, frozenset({0})), 5)
    assert taken == [RUNNING, do.TakeSnapshot(1)]
    assert machine.handle(on.SnapshotTaken(1, 7), 6) == [
        do.RecordChannels(1, frozenset({0})),
        do.ForwardBarrier(barrier),
        do.StartUpload(1),
    ]
    assert machine.handle(Overtaken(barrier, 3, frozenset()), 7) == []
    assert machine.handle(on.UploadDone(1, STATE, 9), 16) == [do.Acknowledge(1, STATE, 7, 9, 2)]


def test_an_unaligned_trigger_at_a_source_follows_the_same_way() -> None:
    machine = _source()
    barrier = Barrier(1, unaligned=True)
    machine.handle(on.TriggerReceived(ME, barrier), 0)
    assert machine.handle(on.SnapshotTaken(1, 7), 0)[0] == do.RecordChannels(1, frozenset())


def test_a_source_that_has_begun_an_aligned_checkpoint_ignores_that_it_turned() -> None:
    machine = _source()
    machine.handle(_trigger(1), 0)
    assert machine.handle(on.TriggerReceived(ME, Barrier(1, unaligned=True)), 0) == []
