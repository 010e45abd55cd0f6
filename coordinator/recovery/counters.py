"""Records in and out of every operator, summed over its subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from lockgate_proto.messages import JobGraph, OperatorCounters, OperatorStatus, SubtaskCounters, SubtaskId, SubtaskState


class JobCounters:
    """The newest counters of each subtask. They are totals since the job's first start, restored with the state."""

    def __init__(self, graph: JobGraph) -> None:
        """graph: normalized."""
        self._graph = graph
        self._latest: dict[tuple[str, int], tuple[OperatorCounters, ...]] = {}

    def restore(self, states: Iterable[SubtaskState]) -> None:
        """An attempt starts from these states: what was counted beyond them is undone."""
        self._latest = {(state.vertex_id, state.subtask): state.counters for state in states}

    def update(self, counters: Iterable[SubtaskCounters], owns: Callable[[SubtaskId | None], bool]) -> None:
        """Newer totals out of a heartbeat; taken from subtasks of the current attempt (`owns`) only."""
        for one in counters:
            if one.subtask is not None and owns(one.subtask):
                self._latest[(one.subtask.vertex_id, one.subtask.subtask)] = one.counters

    def totals(self) -> tuple[OperatorCounters, ...]:
        """One entry per operator, in graph order."""
        records_in: Counter[str] = Counter()
        records_out: Counter[str] = Counter()
        records_late: Counter[str] = Counter()
        malformed: Counter[str] = Counter()
        for counters in self._latest.values():
            for one in counters:
                records_in[one.operator_id] += one.records_in
                records_out[one.operator_id] += one.records_out
                records_late[one.operator_id] += one.records_late
                malformed[one.operator_id] += one.records_malformed
        return tuple(
            OperatorCounters(one.id, records_in[one.id], records_out[one.id], records_late[one.id], malformed[one.id])
            for vertex in self._graph.vertices
            for one in vertex.operators
        )

    def views(self) -> tuple[OperatorStatus, ...]:
        """For JobStatus, in graph order."""
        names = {one.id: (one.name, vertex.id) for vertex in self._graph.vertices for one in vertex.operators}
        return tuple(
            OperatorStatus(
                operator_id=one.operator_id,
                name=names[one.operator_id][0],
                vertex_id=names[one.operator_id][1],
                records_in=one.records_in,
                records_out=one.records_out,
                records_late=one.records_late,
                records_malformed=one.records_malformed,
            )
            for one in self.totals()
        )
