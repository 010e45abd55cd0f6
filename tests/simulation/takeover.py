"""An oracle for adopted attempts: what a new leader owes a task manager that a dead leader has ordered about."""

from __future__ import annotations

from typing import Any

from lockgate_proto.messages import (
    AssignSplits,
    AttemptId,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

from tests.simulation.world import World


class TakeoverOracle:
    """Of one task manager process."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._triggered: dict[AttemptId, dict[int, int]] = {}  # checkpoint id to the leader's token, while it is open
        self._splits: dict[tuple[AttemptId, str, str], int] = {}  # (attempt, vertex, split) to the leader's token

    def heard(self, body: Any, token: int) -> None:
        """A message of a leader is about to be carried out."""
        match body:
            case TriggerCheckpoint(attempt=AttemptId() as attempt, checkpoint_id=number):
                known = self._triggered.setdefault(attempt, {})
                if left := [older for older, under in known.items() if under < token]:
                    self._world.violate(
                        f"{self._name} is to take {number}, and {left} of a dead leader were never ended"
                    )
                known[number] = token
            case NotifyCheckpointComplete(attempt=AttemptId() as attempt, checkpoint_id=number):
                self._ended(attempt, number, and_earlier=True)
            case NotifyCheckpointAborted(attempt=AttemptId() as attempt, checkpoint_id=number, and_earlier=and_earlier):
                self._ended(attempt, number, and_earlier=and_earlier)
            case AssignSplits(subtask=subtask, splits=splits) if subtask is not None and subtask.attempt is not None:
                for split in splits:
                    key = (subtask.attempt, subtask.vertex_id, split.split)
                    if self._splits.setdefault(key, token) < token:
                        self._world.violate(
                            f"split {split.split} on {self._name} was given out by a dead leader before"
                        )

    def _ended(self, attempt: AttemptId, number: int, *, and_earlier: bool) -> None:
        known = self._triggered.get(attempt, {})
        for other in [other for other in known if other == number or (and_earlier and other < number)]:
            del known[other]
