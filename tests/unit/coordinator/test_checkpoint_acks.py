"""Each message of a checkpoint late, twice, out of order, from elsewhere; and the PendingCheckpoint."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    CheckpointKind,
)

from coordinator.checkpoint.effects import (
    CheckpointAborted,
    CheckpointTriggered,
    DiscardPending,
    PersistCheckpoint,
)
from coordinator.checkpoint.events import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    Tick,
)
from coordinator.checkpoint.pending import ALLOWED, PendingCheckpoint, PendingState
from coordinator.graph.story import IllegalTransition
from tests.unit.coordinator.checkpoint_bench import Bench
from tests.unit.coordinator.jobs import SUBTASKS, ack, attempt, subtask

# acknowledgements


def test_complete_needs_an_ack_of_every_subtask() -> None:
    bench = Bench()
    bench.acknowledge(bench.trigger(), without=("count", 1))
    assert not bench.last
    bench.give(Acknowledged(ack(1, "count", 1)))
    assert len(bench.persist().metadata.subtasks) == 4


def test_ack_twice_counts_once() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.acknowledge(number, without=("count", 1))
    bench.give(Acknowledged(ack(number, "count", 0)))
    assert not bench.last


def test_ack_twice_keeps_the_first_state() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.give(Acknowledged(ack(number, "read", 0, sync_us=1)))
    bench.give(Acknowledged(ack(number, "read", 0, sync_us=900_000)))
    bench.acknowledge(number)
    assert bench.persist().record.longest_sync_us == 10


def test_ack_of_an_older_attempt_is_ignored() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.acknowledge(number, without=("count", 1))
    bench.give(Acknowledged(ack(number, "count", 1, number=0)))
    assert not bench.last


def test_ack_of_an_older_checkpoint_is_ignored() -> None:
    bench = Bench(tolerable_failures=5)
    number = bench.trigger()
    bench.decline(number)
    second = bench.trigger()
    bench.acknowledge(second, without=("count", 1))
    bench.give(Acknowledged(ack(number, "count", 1)))
    assert not bench.last


def test_ack_of_a_checkpoint_that_was_never_triggered_is_ignored() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.acknowledge(number + 1)
    assert not bench.last


def test_ack_of_an_unknown_subtask_is_ignored() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.acknowledge(number, without=("count", 1))
    bench.give(Acknowledged(ack(number, "count", 2)))
    bench.give(Acknowledged(AcknowledgeCheckpoint(checkpoint_id=number)))
    assert not bench.last


def test_ack_before_the_id_is_durable_is_ignored() -> None:
    bench = Bench()
    bench.give(Tick(), 1_000)
    bench.acknowledge(1)
    bench.give(CheckpointIdPersisted(1))
    assert bench.of(CheckpointTriggered)
    assert not bench.of(PersistCheckpoint)


def test_ack_after_completion_is_ignored() -> None:
    bench = Bench()
    number = bench.complete()
    bench.acknowledge(number)
    assert not bench.last


def test_ack_after_the_abort_is_ignored() -> None:
    bench = Bench(tolerable_failures=5)
    number = bench.trigger()
    bench.acknowledge(number, without=("count", 1))
    bench.decline(number, ("count", 1))
    bench.give(Acknowledged(ack(number, "count", 1)))
    assert not bench.last


def test_ack_when_nothing_is_pending_is_ignored() -> None:
    bench = Bench()
    bench.acknowledge(1)
    assert not bench.last


def test_an_ack_without_state_stands_for_an_empty_one() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.give(Acknowledged(AcknowledgeCheckpoint(subtask=subtask("read", 0), checkpoint_id=number)))
    bench.acknowledge(number, without=("read", 0))
    assert ("read", 0) in {(one.vertex_id, one.subtask) for one in bench.persist().metadata.subtasks}


# declines


def test_a_decline_aborts_and_discards_what_was_uploaded() -> None:
    bench = Bench(tolerable_failures=1)
    number = bench.trigger()
    bench.decline(number)
    (aborted,) = bench.of(CheckpointAborted)
    assert aborted.reason == "count-0 declined it: too large"
    assert [type(one) for one in bench.last] == [CheckpointAborted, DiscardPending]


@pytest.mark.parametrize(
    ("number", "who", "attempt_number"), [(2, ("count", 0), 1), (1, ("count", 7), 1), (1, ("count", 0), 0)]
)
def test_a_decline_that_does_not_belong_here_is_ignored(number: int, who: tuple[str, int], attempt_number: int) -> None:
    bench = Bench()
    bench.trigger()
    bench.decline(number, who, attempt_number)
    assert not bench.last


def test_a_decline_after_every_ack_is_ignored() -> None:
    bench = Bench()
    number = bench.trigger()
    bench.acknowledge(number)
    bench.decline(number)
    assert not bench.last
    assert bench.machine.settling


# the id


def test_an_id_that_could_not_be_written_is_skipped_and_counts_as_nobodys_failure() -> None:
    bench = Bench()
    bench.give(Tick(), 1_000)
    bench.give(CheckpointIdPersistFailed(1, "not connected"))
    assert not bench.last
    assert bench.trigger(1_000) == 2


def test_an_answer_for_another_id_is_ignored() -> None:
    bench = Bench()
    bench.give(Tick(), 1_000)
    assert not bench.give(CheckpointIdPersisted(9))
    assert not bench.give(CheckpointIdPersistFailed(9, "x"))


def test_an_id_of_a_dead_attempt_triggers_nothing() -> None:
    bench = Bench()
    bench.give(Tick(), 1_000)
    assert not bench.give(AttemptEnded("gone"))
    assert not bench.give(CheckpointIdPersisted(1))
    bench.give(AttemptRunning(attempt(2), frozenset(SUBTASKS)))
    assert bench.trigger() == 2


def test_a_repeated_answer_for_the_id_triggers_once() -> None:
    bench = Bench()
    number = bench.trigger()
    assert not bench.give(CheckpointIdPersisted(number))


# the pending machine


def test_an_illegal_transition_tells_its_story() -> None:
    pending = PendingCheckpoint(1, attempt(1), frozenset(SUBTASKS), CheckpointKind.CHECKPOINT)
    pending.triggered(5, 100)
    with pytest.raises(IllegalTransition, match=r"-> COMPLETED is not allowed(.|\n)*RESERVING -> COLLECTING"):
        pending.move(PendingState.COMPLETED, 6)


def test_every_state_has_its_row_in_the_table() -> None:
    assert set(ALLOWED) == set(PendingState)


def test_completed_ids_only_rise() -> None:
    bench = Bench()
    bench.complete()
    newest = bench.machine.completed.newest
    metadata = bench.machine.completed.restore_point
    assert newest is not None
    assert metadata is not None
    with pytest.raises(ValueError, match="not newer"):
        bench.machine.completed.add(newest, metadata)
