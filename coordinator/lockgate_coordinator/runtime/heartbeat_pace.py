"""HeartbeatPace: how often the leader and its task managers send heartbeats. Pure."""

from __future__ import annotations

from dataclasses import dataclass

A_TASK_MANAGER_MS = 4
"""A heartbeat each way, with counters of ten subtasks, costs the leader about a millisecond: a quarter of a core."""
BEATS_A_TIMEOUT = 3


@dataclass(frozen=True, slots=True)
class HeartbeatPace:
    """usual_ms: of a small cluster. timeout_ms: the silence after which a task manager counts as lost."""

    usual_ms: int
    timeout_ms: int

    def interval_ms(self, task_managers: int) -> int:
        """Between two heartbeats: longer with many task managers, so that these cost the leader the same in all.

        At least BEATS_A_TIMEOUT of them fit into the timeout, unless the usual ones are slower than that.
        """
        return max(self.usual_ms, min(A_TASK_MANAGER_MS * task_managers, self.timeout_ms // BEATS_A_TIMEOUT))
