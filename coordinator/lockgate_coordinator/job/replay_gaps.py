"""What the subtasks of one attempt could not send, or make, again, from heartbeats."""

from __future__ import annotations

from collections.abc import Collection

from lockgate_common.amounts import size_text
from lockgate_proto.messages import ReplayGap, SubtaskCounters

from lockgate_coordinator.graph.execution_graph import ExecutionGraph, SubtaskKey


class ReplayGaps:
    """A task manager of an earlier version reports none: then its subtasks fail when a part has started again."""

    def __init__(self) -> None:
        self._reported: dict[SubtaskKey, ReplayGap] = {}
        self._irreproducible: dict[str, str] = {}  # why, by vertex: its subtasks have the same operators

    def update(self, key: SubtaskKey, report: SubtaskCounters) -> None:
        """Takes that of a subtask of the current attempt from a heartbeat."""
        if report.irreproducible:
            self._irreproducible[key[0]] = report.irreproducible
        if report.gap is not None:
            self._reported[key] = report.gap
        else:
            self._reported.pop(key, None)

    def problem(self, part: Collection[int], checkpoint_id: int, execution: ExecutionGraph) -> str:
        """Why the subtasks in some slots cannot start from a checkpoint while the others run on, as a clause; or "".

        A gap from before the checkpoint does not matter, even if its report is old.
        """
        for vertex, why in sorted(self._irreproducible.items()):
            if any((vertex, slot) in execution.subtasks for slot in part):
                return f"'{vertex}' may produce other results from the same input: {why}"
        for key, gap in sorted(self._reported.items(), key=lambda item: item[0]):
            slots = sorted(slot for slot in part if slot in gap.slots or not gap.slots)
            if key[1] not in part and slots and checkpoint_id < gap.since:
                return (
                    f"{key[0]}-{key[1]} on {execution.task_manager_of(key)} has sent more to slot {slots[0]} since"
                    f" checkpoint {checkpoint_id} than the {size_text(gap.max_bytes)} that it keeps"
                    " (the channel's share of taskmanager.replay_log_bytes)"
                )
        return ""
