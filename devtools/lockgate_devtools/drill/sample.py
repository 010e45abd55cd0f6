"""The numbers of a job's status at one moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lockgate_proto.messages import JobStatus, Partitioning


@dataclass(frozen=True, slots=True)
class Sample:
    """unix_us: wall clock of this host when the status arrived. subtasks: of the attempt that runs, 0 when none does.

    read, written: records of the sources, and of the last operators; read_again: as in JobStatus, under this leader.
    begun: attempts in order, and how many of the subtasks began in each. exchanges: whether records go from one slot
    to another.
    """

    unix_us: int
    token: int
    attempt: int
    subtasks: int
    read: int
    written: int
    read_again: int
    begun: tuple[tuple[int, int], ...] = ()
    exchanges: bool = False

    @staticmethod
    def of(status: JobStatus, unix_us: int) -> Sample:
        """The numbers of a status that arrived just now."""
        read, written = status.records_read or 0, status.records_written or 0
        begun = Counter(subtask.attempt or status.attempt for subtask in status.subtasks)  # 0: of an older leader
        return Sample(
            unix_us,
            status.token,
            status.attempt,
            len(status.subtasks),
            read,
            written,
            status.records_read_again,
            tuple(sorted(begun.items())),
            any(edge.partitioning is not Partitioning.FORWARD for edge in status.edges),
        )
