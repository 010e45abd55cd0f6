"""Records that sources put out once more, because an attempt starts from a snapshot older than what was read before."""

from __future__ import annotations

from collections.abc import Mapping

from lockgate_coordinator.graph.execution_graph import SubtaskKey


class ReadAgain:
    """Of one job under one leader. Pure."""

    def __init__(self, *, never: bool = False) -> None:
        """never: restarts skip what was read, see AT_MOST_ONCE."""
        self.count = 0
        self._never = never
        self._left: dict[SubtaskKey, int] = {}  # read by the replaced attempt, as far as known

    def restored(self, left: Mapping[SubtaskKey, int], start: Mapping[SubtaskKey, int]) -> None:
        """An attempt starts. left: read by the one before, by subtask, at the last report; start: in the snapshot."""
        if self._never:
            return
        self._left = dict(left)
        self.count += max(0, sum(left.values()) - sum(start.values()))

    def ended(self, key: SubtaskKey, read: int) -> None:
        """A subtask of the replaced attempt has ended, and says what it had read. Repeated calls count nothing."""
        more = read - self._left.get(key, 0)
        if more > 0 and not self._never:
            self.count += more
            self._left[key] = read
