"""The numbers of a job's status at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import JobStatus


@dataclass(frozen=True, slots=True)
class Sample:
    """unix_us: wall clock of this host when the status arrived. subtasks: of the attempt that runs, 0 when none does.

    read, written: records of the sources, and of the last operators; read_again: as in JobStatus, under this leader.
    """

    unix_us: int
    token: int
    attempt: int
    subtasks: int
    read: int
    written: int
    read_again: int

    @staticmethod
    def of(status: JobStatus, unix_us: int) -> Sample:
        """The numbers of a status that arrived just now."""
        read, written = status.records_read or 0, status.records_written or 0
        return Sample(
            unix_us, status.token, status.attempt, len(status.subtasks), read, written, status.records_read_again
        )
