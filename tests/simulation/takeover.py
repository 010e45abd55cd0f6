"""An oracle for what leaders owe a task manager, above all a new one where a dead one has ordered about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockgate_coordinator.job.attempt import PART_TIMEOUT_MS
from lockgate_proto.messages import (
    AssignSplits,
    AttemptId,
    Deploy,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

from tests.simulation.world import World

LONGEST_MS = PART_TIMEOUT_MS + 5_000
"""For which subtasks may run on while no checkpoint begins or ends: their sinks hold everything since the last one.
Here only one loss at a time keeps a part waiting, and a deployment takes a moment.
"""


class TakeoverOracle:
    """Of one task manager process."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._triggered: dict[AttemptId, dict[int, int]] = {}  # checkpoint id to the leader's token, while it is open
        self._checkpoint_ms: dict[AttemptId, float] = {}  # when the last one began or ended
        self._splits: dict[tuple[AttemptId, str, str], int] = {}  # (attempt, vertex, split) to the leader's token

    def heard(self, body: Any, token: int) -> None:
        """A message of a leader is about to be carried out."""
        if isinstance(body, Deploy | TriggerCheckpoint | NotifyCheckpointComplete | NotifyCheckpointAborted):
            assert body.attempt is not None
            self._checkpoint_ms[body.attempt] = self._world.now
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

    def run(self, attempts: Iterable[AttemptId]) -> None:
        """These run here now."""
        for attempt in attempts:
            if (silent_ms := self._world.now - self._checkpoint_ms[attempt]) > LONGEST_MS:
                text = f"{attempt} on {self._name} runs, and for {silent_ms:.0f} ms no checkpoint began or ended"
                self._world.violate(f"[5] {text}")

    def _ended(self, attempt: AttemptId, number: int, *, and_earlier: bool) -> None:
        known = self._triggered.get(attempt, {})
        for other in [other for other in known if other == number or (and_earlier and other < number)]:
            del known[other]
