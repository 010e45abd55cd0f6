"""What the next leader has to know of an attempt in order to adopt it: how far its subtasks here have come.

Noted before a report is sent and before an assignment is passed on. So whatever was reported to a dead leader or
ordered by it is in the registration with the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lockgate_proto.messages import (
    AssignSplits,
    AttemptId,
    AttemptProgress,
    CheckpointCommitted,
    OperatorCounters,
    SplitState,
    SubtaskId,
    SubtaskProgress,
    SubtaskReport,
)

MAX_ASSIGNED_BYTES = 4 << 20
"""Of the splits of one attempt on one task manager. A leader that would have to know more restarts the job."""
_SPLIT_BYTES = 40  # beside its name


class Progress:
    """Of one attempt on this task manager. Thread safe."""

    def __init__(self, attempt: AttemptId, subtasks: Iterable[SubtaskId]) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._subtasks = {key: SubtaskProgress(key.vertex_id, key.subtask) for key in subtasks}
        self._assigned: dict[SubtaskId, dict[str, SplitState]] = {}
        self._complete: set[SubtaskId] = set()
        self._partial: set[SubtaskId] = set()  # with splits that are not in `_assigned`, for want of room
        self._size_bytes = 0

    def reported(self, body: Any) -> None:
        """A report to the leader. Those that say nothing of how far a subtask is are ignored."""
        with self._lock:
            match body:
                case SubtaskReport(subtask, phase) if subtask in self._subtasks:
                    self._subtasks[subtask] = replace(self._subtasks[subtask], phase=phase)
                case CheckpointCommitted(subtask, number, has_output) if subtask in self._subtasks:
                    known = self._subtasks[subtask]
                    has_output = has_output or known.has_output
                    self._subtasks[subtask] = replace(known, committed_id=number, has_output=has_output)

    def assigned(self, body: AssignSplits) -> None:
        """The leader has assigned splits. The same ones again change nothing."""
        with self._lock:
            subtask = body.subtask
            if subtask not in self._subtasks:
                return
            known = self._assigned.setdefault(subtask, {})
            if body.complete:
                self._complete.add(subtask)
            for split in body.splits:
                if split.split in known:
                    continue
                if self._size_bytes > MAX_ASSIGNED_BYTES:
                    self._partial.add(subtask)
                    break
                known[split.split] = split
                self._size_bytes += len(split.split) + _SPLIT_BYTES

    def forget(self, subtasks: Iterable[SubtaskId]) -> None:
        """They are replaced by a later attempt, and the others run on."""
        with self._lock:
            for key in subtasks:
                self._subtasks.pop(key, None)
                self._complete.discard(key)
                self._partial.discard(key)
                gone = self._assigned.pop(key, {})
                self._size_bytes -= sum(len(name) + _SPLIT_BYTES for name in gone)

    def message(self, counters: Mapping[SubtaskId, tuple[OperatorCounters, ...]]) -> AttemptProgress | None:
        """For the registration with a leader; None when it would be too large. counters: the newest ones.

        None as well while any split is missing, since a leader that does not know of it would assign it once more.
        """
        with self._lock:
            if self._partial or self._size_bytes > MAX_ASSIGNED_BYTES:
                return None
            found = (replace(self._of(key), counters=counters.get(key, ())) for key in self._subtasks)
            return AttemptProgress(self._attempt, tuple(found))

    def _of(self, subtask: SubtaskId) -> SubtaskProgress:
        return replace(
            self._subtasks[subtask],
            has_assigned=subtask in self._assigned,
            assigned=tuple(self._assigned.get(subtask, {}).values()),
            complete=subtask in self._complete,
        )
