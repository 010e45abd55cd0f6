"""Each message of a checkpoint late, twice, out of order, from elsewhere; and the PendingCheckpoint."""

from __future__ import annotations

import pytest
from lockgate_common.story import IllegalTransition
from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.checkpoint.effects import (
    CheckpointAborted,
    CheckpointTriggered,
    DiscardPending,
    PersistCheckpoint,
)
from lockgate_coordinator.checkpoint.events import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    Tick,
)
from lockgate_coordinator.checkpoint.failures import FailureReason, Fault
from lockgate_coordinator.checkpoint.pending import ALLOWED, AckResult, PendingCheckpoint, PendingState
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    CheckpointKind,
)

from tests.unit.coordinator.jobs import SUBTASKS, ack, attempt, subtask
from tests.unit.coordinator.testing_checkpoints import TestingCheckpoints

# acknowledgements


def test_complete_needs_an_ack_of_every_subtask() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.acknowledge(checkpoints.trigger(), without=("count", 1))
    assert not checkpoints.last
    checkpoints.give(Acknowledged(ack(1, "count", 1)))
    assert len(checkpoints.persist().metadata.subtasks) == 4


def test_what_is_due_is_looked_for_once_for_acks_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = TestingCheckpoints()
    number, first, second, third, *_ = checkpoints.trigger(), *SUBTASKS
    looked: list[int] = []
    expire = CheckpointCoordinator._expire
    monkeypatch.setattr(
        CheckpointCoordinator, "_expire", lambda self, now_ms: looked.append(now_ms) or expire(self, now_ms)
    )
    checkpoints.give(Acknowledged(ack(number, *first)), after_ms=10)
    checkpoints.give(Acknowledged(ack(number, *second)))
    assert looked == [checkpoints.now]
    checkpoints.give(Acknowledged(ack(number, *third)), after_ms=20_000)
    assert checkpoints.of(CheckpointAborted), "its time was over before the last ack"


def test_ack_twice_counts_once() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=("count", 1))
    checkpoints.give(Acknowledged(ack(number, "count", 0)))
    assert not checkpoints.last


def test_ack_twice_keeps_the_first_state() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.give(Acknowledged(ack(number, "read", 0, sync_us=1)))
    checkpoints.give(Acknowledged(ack(number, "read", 0, sync_us=900_000)))
    checkpoints.acknowledge(number)
    assert checkpoints.persist().record.longest_sync_us == 10


def test_ack_of_an_older_attempt_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=("count", 1))
    checkpoints.give(Acknowledged(ack(number, "count", 1, number=0)))
    assert not checkpoints.last


def test_ack_of_an_older_checkpoint_is_ignored() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=5)
    number = checkpoints.trigger()
    checkpoints.decline(number)
    second = checkpoints.trigger()
    checkpoints.acknowledge(second, without=("count", 1))
    checkpoints.give(Acknowledged(ack(number, "count", 1)))
    assert not checkpoints.last


def test_ack_of_a_checkpoint_that_was_never_triggered_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.acknowledge(number + 1)
    assert not checkpoints.last


def test_ack_of_an_unknown_subtask_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=("count", 1))
    checkpoints.give(Acknowledged(ack(number, "count", 2)))
    checkpoints.give(Acknowledged(AcknowledgeCheckpoint(checkpoint_id=number)))
    assert not checkpoints.last


def test_ack_before_the_id_is_durable_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(Tick(), 1_000)
    checkpoints.acknowledge(1)
    checkpoints.give(CheckpointIdPersisted(1))
    assert checkpoints.of(CheckpointTriggered)
    assert not checkpoints.of(PersistCheckpoint)


def test_ack_after_completion_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.complete()
    checkpoints.acknowledge(number)
    assert not checkpoints.last


def test_ack_after_the_abort_is_ignored() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=5)
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=("count", 1))
    checkpoints.decline(number, ("count", 1))
    checkpoints.give(Acknowledged(ack(number, "count", 1)))
    assert not checkpoints.last


def test_ack_when_nothing_is_pending_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.acknowledge(1)
    assert not checkpoints.last


def test_an_ack_without_state_stands_for_an_empty_one() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.give(Acknowledged(AcknowledgeCheckpoint(subtask=subtask("read", 0), checkpoint_id=number)))
    checkpoints.acknowledge(number, without=("read", 0))
    assert ("read", 0) in {(subtask.vertex_id, subtask.subtask) for subtask in checkpoints.persist().metadata.subtasks}


# declines


def test_a_decline_aborts_and_discards_uploads() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=1)
    number = checkpoints.trigger()
    checkpoints.decline(number)
    (aborted,) = checkpoints.of(CheckpointAborted)
    assert (aborted.reason, aborted.text) == (FailureReason.DECLINED, "count-0 declined it: too large")
    assert [type(effect) for effect in checkpoints.last] == [CheckpointAborted, DiscardPending]


@pytest.mark.parametrize(
    ("number", "who", "attempt_number"), [(2, ("count", 0), 1), (1, ("count", 7), 1), (1, ("count", 0), 0)]
)
def test_a_decline_that_does_not_belong_here_is_ignored(number: int, who: tuple[str, int], attempt_number: int) -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.trigger()
    checkpoints.decline(number, who, attempt_number)
    assert not checkpoints.last


def test_a_decline_after_every_ack_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.acknowledge(number)
    checkpoints.decline(number)
    assert not checkpoints.last
    assert checkpoints.machine.settling


# the id


def test_an_id_that_could_not_be_written_is_skipped_and_counts_as_no_failure() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(Tick(), 1_000)
    checkpoints.give(CheckpointIdPersistFailed(1, "not connected"))
    assert not checkpoints.last
    assert checkpoints.trigger(1_000) == 2


def test_an_answer_for_another_id_is_ignored() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(Tick(), 1_000)
    assert not checkpoints.give(CheckpointIdPersisted(9))
    assert not checkpoints.give(CheckpointIdPersistFailed(9, "x"))


def test_an_id_of_a_dead_attempt_triggers_nothing() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(Tick(), 1_000)
    assert not checkpoints.give(AttemptEnded("gone"))
    assert not checkpoints.give(CheckpointIdPersisted(1))
    checkpoints.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    assert checkpoints.trigger() == 2


def test_a_repeated_answer_for_the_id_triggers_once() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    assert not checkpoints.give(CheckpointIdPersisted(number))


# the pending machine


def test_an_illegal_transition_raises_with_its_story() -> None:
    pending = PendingCheckpoint(1, attempt(1), frozenset(SUBTASKS), CheckpointKind.CHECKPOINT)
    pending.triggered(5, 100)
    with pytest.raises(IllegalTransition, match=r"-> COMPLETED is not allowed(.|\n)*RESERVING -> COLLECTING"):
        pending.move(PendingState.COMPLETED, 6)


def test_each_acknowledgement_is_answered_and_counted() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=5)
    aborted = checkpoints.trigger()
    checkpoints.decline(aborted)
    number = checkpoints.trigger()
    for key in (("count", 0), ("count", 0), ("count", 2)):
        checkpoints.give(Acknowledged(ack(number, *key)))
    checkpoints.give(Acknowledged(ack(number, "count", 1, number=0)))  # of another attempt
    checkpoints.give(Acknowledged(ack(aborted, "count", 0)))
    checkpoints.give(Acknowledged(ack(number + 1, "count", 0)))
    assert checkpoints.machine.acknowledgements == {
        AckResult.SUCCESS: 1,
        AckResult.DUPLICATE: 1,
        AckResult.UNKNOWN: 3,
        AckResult.DISCARDED: 1,
    }


def test_a_missing_acknowledgement_is_reported_with_the_ignored_ones() -> None:
    checkpoints = TestingCheckpoints()
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=("count", 1))
    checkpoints.give(Acknowledged(ack(number, "count", 2)))
    checkpoints.give(Tick(), 10_000)
    (aborted,) = checkpoints.of(CheckpointAborted)
    assert aborted.text == "not acknowledged in time by count-1 (ignored acknowledgements of other subtasks: 1)"


def test_an_acknowledgement_before_the_trigger_is_discarded() -> None:
    pending = PendingCheckpoint(1, attempt(1), frozenset(SUBTASKS), CheckpointKind.CHECKPOINT)
    assert pending.acknowledge(ack(1, "count", 0), 5) is AckResult.DISCARDED
    pending.triggered(6, 100)
    assert pending.acknowledge(ack(1, "count", 0), 7) is AckResult.SUCCESS


def test_every_reason_to_abort_a_checkpoint_has_its_own_text() -> None:
    assert len({reason.value for reason in FailureReason}) == len(FailureReason)
    assert FailureReason.EXPIRED.fault is Fault.NONE, "whose it is shows later"


def test_every_state_has_its_row_in_the_table() -> None:
    assert set(ALLOWED) == set(PendingState)


def test_completed_ids_only_rise() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.complete()
    newest = checkpoints.machine.completed.newest
    metadata = checkpoints.machine.completed.restore_point
    assert newest is not None
    assert metadata is not None
    with pytest.raises(ValueError, match="not newer"):
        checkpoints.machine.completed.add(newest, metadata)
