"""RecentMessages: what is said again on the next stream."""

from __future__ import annotations

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    CheckpointCommitted,
    Heartbeat,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    SubtaskId,
    SubtaskState,
)

from taskmanager.runtime.recent import REPEAT_S, RecentMessages

ATTEMPT, OTHER = AttemptId("job", "run", 1), AttemptId("job", "run", 2)


def _ack(number: int, attempt: AttemptId = ATTEMPT) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint(SubtaskId(attempt, "v", 0), number, SubtaskState("v", 0))


def _said(*bodies: object) -> RecentMessages:
    made = RecentMessages()
    for body in bodies:
        made.said(body, 3, 1.0)
    return made


def test_every_checkpoint_in_flight_is_acknowledged_again_in_whatever_order_they_were_stored() -> None:
    recent = _said(_ack(6), _ack(5))
    assert recent.to_repeat(3, 1.5) == [_ack(6), _ack(5)]


def test_acknowledgements_go_when_the_leader_has_said_how_the_checkpoint_ended() -> None:
    committed = CheckpointCommitted(SubtaskId(ATTEMPT, "v", 0), 5)
    recent = _said(_ack(4), _ack(5), _ack(6), _ack(7), committed, _ack(5, OTHER))
    recent.heard(NotifyCheckpointComplete(ATTEMPT, 5))
    assert recent.to_repeat(3, 1.5) == [_ack(6), _ack(7), committed, _ack(5, OTHER)]
    recent.heard(NotifyCheckpointAborted(ATTEMPT, 7))
    assert recent.to_repeat(3, 1.5) == [_ack(6), committed, _ack(5, OTHER)]


def test_only_the_same_leader_hears_it_again_and_only_for_a_while() -> None:
    recent = _said(_ack(5), Heartbeat(1))
    assert recent.to_repeat(4, 1.5) == []
    assert recent.to_repeat(3, 1.0 + REPEAT_S) == [_ack(5)], "a heartbeat is never said again"
    assert recent.to_repeat(3, 1.1 + REPEAT_S) == []
    recent.said(_ack(6), 3, 1.5 + REPEAT_S)
    assert recent.to_repeat(3, 1.5 + REPEAT_S) == [_ack(6)]
