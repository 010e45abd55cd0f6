"""What became of checkpoints is kept for a while: completed or aborted, and why."""

from __future__ import annotations

from dataclasses import replace

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.events import (
    Acknowledged,
    AttemptEnded,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    CheckpointPersisted,
    SavepointRequested,
    Tick,
)
from lockgate_coordinator.checkpoint.failures import FailureReason
from lockgate_coordinator.checkpoint.history import MOST_OUTCOMES
from lockgate_proto.messages import (
    AbortReason,
    CheckpointKind,
    CheckpointOutcome,
    CompletedCheckpoint,
    OperatorState,
    StateHandle,
    SubtaskState,
)

from tests.unit.coordinator.jobs import SUBTASKS, TOKEN, ack
from tests.unit.coordinator.testing_checkpoints import TestingCheckpoints


def _history(checkpoints: TestingCheckpoints) -> tuple[CheckpointOutcome, ...]:
    known = checkpoints.machine.completed
    return known.history.outcomes(known.all())


def _ids(found: tuple[CheckpointOutcome, ...]) -> list[int]:
    return [outcome.checkpoint.checkpoint_id for outcome in found if outcome.checkpoint is not None]


def test_every_reason_has_a_name_for_clients() -> None:
    assert {reason.name for reason in AbortReason if reason} == {f"ABORT_{reason.name}" for reason in FailureReason}


def test_a_completed_one_stays_when_it_is_subsumed() -> None:
    checkpoints = TestingCheckpoints()
    first, second = checkpoints.complete(), checkpoints.complete()
    newer, older = _history(checkpoints)
    assert _ids((newer, older)) == [second, first]
    assert (newer.retained, older.retained) == (True, False)
    assert newer.checkpoint == checkpoints.machine.completed.newest
    assert (older.aborted, older.attempt, older.acknowledged, older.subtasks) == (0, 1, len(SUBTASKS), len(SUBTASKS))


def test_an_aborted_one_has_its_reason_and_what_was_acknowledged() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.complete()
    number = checkpoints.trigger()
    handles = (StateHandle(size_bytes=70, checkpoint_id=number), StateHandle(size_bytes=30, checkpoint_id=number - 1))
    state = SubtaskState("read", 0, tuple(OperatorState(f"o{at}", handle=handle) for at, handle in enumerate(handles)))
    first = replace(ack(number, "read", 0, state=state), sync_us=900, alignment_ms=7)
    checkpoints.give(Acknowledged(first), after_ms=100)
    checkpoints.decline(number)
    found = _history(checkpoints)[0]
    assert (found.aborted, found.retained, found.attempt) == (AbortReason.ABORT_DECLINED, False, 1)
    assert found.text == "count-0 declined it: too large"
    assert (found.acknowledged, found.subtasks) == (1, len(SUBTASKS))
    assert found.checkpoint == CompletedCheckpoint(
        number,
        kind=CheckpointKind.CHECKPOINT,
        token=TOKEN,
        triggered_unix_ms=2_000,
        duration_ms=100,
        size_bytes=100,
        written_bytes=70,
        longest_sync_us=900,
        longest_alignment_ms=7,
    )


def test_one_that_expires_names_who_did_not_acknowledge() -> None:
    checkpoints = TestingCheckpoints(timeout_ms=5_000)
    number = checkpoints.trigger()
    checkpoints.acknowledge(number, without=("count", 1))
    checkpoints.give(Tick(), after_ms=5_000)
    (found,) = _history(checkpoints)[-1:]
    assert (found.aborted, found.text) == (AbortReason.ABORT_EXPIRED, "not acknowledged in time by count-1")
    assert (found.checkpoint and found.checkpoint.duration_ms, found.acknowledged) == (5_000, len(SUBTASKS) - 1)


def test_the_end_of_an_attempt_and_a_newer_one_are_reasons() -> None:
    checkpoints = TestingCheckpoints(max_concurrent=2)
    older = checkpoints.trigger()
    newer = checkpoints.trigger()
    checkpoints.acknowledge(newer)
    checkpoints.give(CheckpointPersisted(checkpoints.persist().record))
    last = checkpoints.trigger()
    checkpoints.give(AttemptEnded("task manager b is lost"))
    found = {outcome.checkpoint.checkpoint_id: outcome for outcome in _history(checkpoints) if outcome.checkpoint}
    assert (found[older].aborted, found[older].text) == (
        AbortReason.ABORT_SUBSUMED,
        f"checkpoint {newer} subsumes it",
    )
    assert (found[last].aborted, found[last].text) == (AbortReason.ABORT_ATTEMPT_ENDED, "task manager b is lost")
    assert not found[newer].aborted


def test_a_savepoint_that_fails_is_one_of_them_and_what_was_never_triggered_is_not() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.give(SavepointRequested("mine", 1_000))
    number = checkpoints.machine.newest_begun_id
    checkpoints.give(CheckpointIdPersisted(number))
    checkpoints.give(Tick(), after_ms=1_000)
    (found,) = _history(checkpoints)
    assert found.checkpoint is not None
    assert (found.checkpoint.kind, found.aborted) == (CheckpointKind.SAVEPOINT, AbortReason.ABORT_EXPIRED)
    checkpoints.give(CheckpointIdPersistFailed(checkpoints.machine.newest_begun_id, "away"))
    assert len(_history(checkpoints)) == 1


def test_it_is_bounded_and_aborted_ones_push_no_completed_one_out() -> None:
    checkpoints = TestingCheckpoints(tolerable_failures=10_000)
    completed = [checkpoints.complete() for _ in range(MOST_OUTCOMES + 5)]
    aborted = []
    for _ in range(MOST_OUTCOMES + 7):
        aborted.append(checkpoints.trigger())
        checkpoints.decline(aborted[-1])
    found = _history(checkpoints)
    assert _ids(found) == sorted((*completed[5:], *aborted[7:]), reverse=True)
    assert [outcome.aborted != 0 for outcome in found] == [True] * MOST_OUTCOMES + [False] * MOST_OUTCOMES


def test_a_long_text_is_cut() -> None:
    checkpoints = TestingCheckpoints()
    checkpoints.trigger()
    checkpoints.give(AttemptEnded("x" * 1_000_000))
    assert len(_history(checkpoints)[0].text) == 2_000


def test_a_new_leader_knows_what_is_retained() -> None:
    stored = (CompletedCheckpoint(4, "p4", token=1), CompletedCheckpoint(2, "p2", kind=CheckpointKind.SAVEPOINT))
    known = CompletedCheckpoints(1, stored, None)
    found = known.history.outcomes(known.all())
    assert [(outcome.retained, outcome.attempt, outcome.subtasks) for outcome in found] == [(True, 0, 0)] * 2
    assert _ids(found) == [4, 2]
