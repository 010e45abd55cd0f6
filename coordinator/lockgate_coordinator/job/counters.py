"""Counters from heartbeats: records in and out of every operator, and operator calls that do not return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from operator import add, attrgetter, sub

from lockgate_common.amounts import listed
from lockgate_proto.messages import (
    JobGraph,
    OperatorCounters,
    OperatorStatus,
    Partitioning,
    SubtaskCounters,
    SubtaskState,
)

from lockgate_coordinator.graph.execution_graph import SubtaskKey
from lockgate_coordinator.job.read_history import ReadRecorder

_COUNTS = tuple(field.name for field in fields(OperatorCounters) if field.name != "operator_id")
_counts = attrgetter(*_COUNTS)
_NOTHING = (0,) * len(_COUNTS)


def summed(operator_id: str, parts: Iterable[OperatorCounters]) -> OperatorCounters:
    """The sum of the counters of several subtasks for one operator."""
    found = tuple(parts)
    return OperatorCounters(operator_id, **{name: sum(getattr(part, name) for part in found) for name in _COUNTS})


def operator_status(counters: OperatorCounters, name: str = "", vertex_id: str = "") -> OperatorStatus:
    """The counters in the form for clients. name: of the operator."""
    counts = {count: getattr(counters, count) for count in _COUNTS}
    return OperatorStatus(operator_id=counters.operator_id, name=name, vertex_id=vertex_id, **counts)


class JobCounters:
    """The newest counters of each subtask. They are totals since the job's first start, restored with the state."""

    def __init__(self, graph: JobGraph) -> None:
        """graph: normalized."""
        self._graph = graph
        edges = [edge for edge in graph.edges if edge.partitioning is not Partitioning.FEEDBACK]
        entered, left = {edge.target for edge in edges}, {edge.source for edge in edges}
        chains = {vertex.id: vertex.operators for vertex in graph.vertices if vertex.operators}
        self._firsts = frozenset(chain[0].id for vertex, chain in chains.items() if vertex not in entered)
        self._lasts = frozenset(chain[-1].id for vertex, chain in chains.items() if vertex not in left)
        self._latest: dict[SubtaskKey, tuple[OperatorCounters, ...]] = {}
        self._totals: dict[str, tuple[int, ...]] = {}  # by operator, kept up: a status must not add up all subtasks
        self.reads = ReadRecorder()
        self._ahead: set[str] = set()  # operators with records too far ahead of the clock
        self._ahead_reported: set[str] = set()  # those already reported, or known from a snapshot

    def restore(self, states: Iterable[SubtaskState], stay: Collection[SubtaskKey] = ()) -> None:
        """Resets the counters to those of the states from which an attempt starts. stay: subtasks that run on."""
        kept = {key: self._latest[key] for key in stay if key in self._latest}
        self._latest = {(state.vertex_id, state.subtask): state.counters for state in states} | kept
        self._totals = {}
        for counters in self._latest.values():
            self._count(counters, add)
        self._ahead_reported |= {
            item.operator_id for state in self._latest.values() for item in state if item.records_ahead
        }

    def update(self, key: SubtaskKey, report: SubtaskCounters) -> None:
        """Takes newer totals of a subtask of the current attempt from a heartbeat."""
        before = self._latest.get(key, ())
        self._latest[key] = report.counters
        if report.counters != before:
            self._count(before, sub)
            self._count(report.counters, add)
        self._ahead.update(counters.operator_id for counters in report.counters if counters.records_ahead)

    def record(self, now_ms: int) -> None:
        """Remembers what was read up to now, once a second."""
        self.reads.note(self.read_in(self.totals()), now_ms)

    def read(self) -> dict[SubtaskKey, int]:
        """What each source subtask has put out."""
        return {key: self.read_in(counters) for key, counters in self._latest.items()}

    def read_in(self, counters: Iterable[OperatorCounters]) -> int:
        """What the source in these counters of one subtask has put out; 0 for a subtask without one."""
        return sum(counter.records_out for counter in counters if counter.operator_id in self._firsts)

    def newly_ahead(self) -> tuple[OperatorStatus, ...]:
        """Operators that have met records too far ahead of the clock, each once."""
        new = self._ahead - self._ahead_reported
        self._ahead_reported |= new
        return tuple(view for view in self.views() if view.operator_id in new) if new else ()

    def totals(self) -> tuple[OperatorCounters, ...]:
        """One entry per operator, in graph order."""
        return tuple(
            OperatorCounters(operator.id, **dict(zip(_COUNTS, self._totals.get(operator.id, _NOTHING), strict=True)))
            for vertex in self._graph.vertices
            for operator in vertex.operators
        )

    def _count(self, counters: Iterable[OperatorCounters], how: Callable[[int, int], int]) -> None:
        for item in counters:
            counts, before = _counts(item), self._totals.get(item.operator_id, _NOTHING)
            self._totals[item.operator_id] = tuple(map(how, before, counts))

    def read_and_written(self, totals: Iterable[OperatorCounters | OperatorStatus]) -> tuple[int, int]:
        """What the first operators of vertices without inputs put out, and the last ones of those without outputs got.

        totals: of every operator.
        """
        found = tuple(totals)
        read = sum(total.records_out for total in found if total.operator_id in self._firsts)
        return read, sum(total.records_in for total in found if total.operator_id in self._lasts)

    def views(self) -> tuple[OperatorStatus, ...]:
        """For JobStatus, in graph order."""
        names = {
            operator.id: (operator.name, vertex.id) for vertex in self._graph.vertices for operator in vertex.operators
        }
        return tuple(operator_status(total, *names[total.operator_id]) for total in self.totals())


_MAX_LISTED = 3


class AtWork:
    """The operator calls of one attempt that had not returned at the last heartbeat."""

    def __init__(self) -> None:
        self._reported: dict[SubtaskKey, tuple[str, int]] = {}

    def update(self, key: SubtaskKey, report: SubtaskCounters) -> None:
        """Takes the call of a subtask of the current attempt from a heartbeat."""
        if report.at_work:
            self._reported[key] = (report.at_work, report.at_work_ms)
        else:
            self._reported.pop(key, None)

    def clear(self) -> None:
        """A new attempt begins."""
        self._reported.clear()

    def sentence(self, place_of: Callable[[SubtaskKey], str], on: Collection[str] | None = None) -> str:
        """The running calls, where and for how long; "" for none. on: only on these task managers."""
        found = [
            f"{what} of {key[0]}-{key[1]} on {place_of(key)} (for {since_ms // 1000} s)"
            for key, (what, since_ms) in sorted(self._reported.items())
            if on is None or place_of(key) in on
        ]
        if not found:
            return ""
        return f"Still running at the last report: {listed(found, _MAX_LISTED)}."


def ahead_text(operator: OperatorStatus) -> str:
    """What an event says of an operator whose records are ahead of the clock."""
    return (
        f"the first {operator.records_ahead} records of '{operator.name}' are further ahead of the clock than "
        f"max_ahead allows: they are processed, but do not advance event time"
    )
