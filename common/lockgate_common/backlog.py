"""What the sources of a job have found and not read yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lockgate_proto.messages import EdgeView, JobBacklog, JobStatus, Partitioning, SubtaskLoad, SubtaskStatusView

from lockgate_common.amounts import counted, size_text


@dataclass(frozen=True, slots=True)
class Backlog:
    """In the units that a source knows; None: not known.

    records: some may be positions without a record; bytes: of files; splits: files, partitions and the like that are
    not read to their known ends.
    """

    records: int | None = None
    bytes: int | None = None
    splits: int | None = None

    @classmethod
    def of(cls, load: SubtaskLoad) -> Backlog:
        """Of one subtask."""
        return cls(
            load.backlog_records if load.has_backlog_records else None,
            load.backlog_bytes if load.has_backlog_bytes else None,
            load.backlog_splits if load.has_backlog_splits else None,
        )

    def message(self) -> JobBacklog:
        """For clients that do not get the subtasks."""
        return JobBacklog(self.records, self.bytes, self.splits)

    @property
    def is_known(self) -> bool:
        """Whether there is any figure."""
        return self != _UNKNOWN

    def __str__(self) -> str:
        """For people: `1,200 records`, `3.4 MiB in 2 splits`; `-` where it is not known."""
        amounts = [] if self.records is None else [counted(self.records, "record")]
        amounts += [] if self.bytes is None else [size_text(self.bytes)]
        if self.splits is None or (amounts and not self.splits):
            return " + ".join(amounts) or "-"
        splits = counted(self.splits, "split")
        return f"{' + '.join(amounts)} in {splits}" if amounts else splits


_UNKNOWN = Backlog()


def vertex_backlogs(subtasks: Iterable[SubtaskStatusView]) -> dict[str, Backlog]:
    """By vertex id, where known. A vertex lacks a figure that one of its subtasks lacks: the sum would be too low."""
    sums = {vertex: _sum(loads) for vertex, loads in _by_vertex(subtasks).items()}
    return {vertex: backlog for vertex, backlog in sums.items() if backlog.is_known}


def job_backlog(status: JobStatus) -> Backlog:
    """Of all its sources together; unknown while one of them has no figure at all."""
    if status.backlog is not None:
        return Backlog(status.backlog.records, status.backlog.size_bytes, status.backlog.splits)
    entered = {edge.target for edge in forward_edges(status)}
    loads = _by_vertex(status.subtasks)
    return sources_backlog(found for vertex, found in loads.items() if vertex not in entered)


def sources_backlog(loads: Iterable[Sequence[SubtaskLoad | None]]) -> Backlog:
    """The same, out of what the subtasks of each source have reported."""
    values = [_sum(found) for found in loads]
    if not all(backlog.is_known for backlog in values):
        return _UNKNOWN
    return Backlog(
        _sum_of_known([backlog.records for backlog in values]),
        _sum_of_known([backlog.bytes for backlog in values]),
        _sum_of_known([backlog.splits for backlog in values]),
    )


def forward_edges(status: JobStatus) -> list[EdgeView]:
    """Without the edges that close loops, a job's graph has no circle."""
    return [edge for edge in status.edges if edge.partitioning is not Partitioning.FEEDBACK]


def _by_vertex(subtasks: Iterable[SubtaskStatusView]) -> dict[str, list[SubtaskLoad | None]]:
    found: dict[str, list[SubtaskLoad | None]] = {}
    for subtask in subtasks:
        found.setdefault(subtask.vertex_id, []).append(subtask.load)
    return found


def _sum(loads: Sequence[SubtaskLoad | None]) -> Backlog:
    backlogs = [_UNKNOWN if load is None else Backlog.of(load) for load in loads]
    return Backlog(
        _sum_if_all([backlog.records for backlog in backlogs]),
        _sum_if_all([backlog.bytes for backlog in backlogs]),
        _sum_if_all([backlog.splits for backlog in backlogs]),
    )


def _sum_if_all(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _sum_of_known(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
