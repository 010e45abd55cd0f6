"""What the next leader has to know of an attempt in order to adopt it: how far its subtasks here have come.

Noted before a report is sent and before an assignment is passed on. So whatever a dead leader was told or has ordered
is in the registration with the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lockgate_proto.messages import (
    AssignSplits,
    AttemptId,
    AttemptProgress,
    CheckpointCommitted,
    SubtaskId,
    SubtaskProgress,
    SubtaskReport,
)

MAX_ASSIGNED = 100_000
"""Splits of one attempt on one task manager. A leader that would have to know more of them restarts the job."""


class Progress:
    """Of one attempt on this task manager. Thread safe."""

    def __init__(self, attempt: AttemptId, subtasks: Iterable[SubtaskId]) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._subtasks = {key: SubtaskProgress(key.vertex_id, key.subtask) for key in subtasks}
        self._assigned: dict[SubtaskId, list[AssignSplits]] = {}
        self._count = 0

    def reported(self, body: Any) -> None:
        """A report to the leader. Those that say nothing of how far a subtask is are ignored."""
        with self._lock:
            match body:
                case SubtaskReport(subtask, phase) if subtask in self._subtasks:
                    self._subtasks[subtask] = replace(self._subtasks[subtask], phase=phase)
                case CheckpointCommitted(subtask, number) if subtask in self._subtasks:
                    self._subtasks[subtask] = replace(self._subtasks[subtask], committed_id=number)

    def assigned(self, body: AssignSplits) -> None:
        """The leader has assigned splits. The same ones again change nothing."""
        with self._lock:
            if body.subtask in self._subtasks and self._count <= MAX_ASSIGNED:
                self._count += len(body.splits)
                self._assigned.setdefault(body.subtask, []).append(body)

    def message(self) -> AttemptProgress | None:
        """For the registration with a leader; None when it would be too large."""
        with self._lock:
            if self._count > MAX_ASSIGNED:
                return None
            return AttemptProgress(self._attempt, tuple(map(self._of, self._subtasks)))

    def _of(self, subtask: SubtaskId) -> SubtaskProgress:
        bodies = self._assigned.get(subtask, ())
        splits = {split.split: split for body in bodies for split in body.splits}
        return replace(
            self._subtasks[subtask],
            has_assigned=bool(bodies),
            assigned=tuple(splits.values()),
            complete=any(body.complete for body in bodies),
        )
