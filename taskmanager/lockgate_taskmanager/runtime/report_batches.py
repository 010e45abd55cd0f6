"""ReportBatches: reports of subtasks wait for each other, so that the leader of a large job gets fewer messages. Pure.

empty --add--> waiting --each subtask here has reported, or the first has waited long enough--> take --> empty
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from lockgate_proto.messages import BatchedReport, DeclineCheckpoint, ReportBatch, SubtaskPhase, SubtaskReport

from lockgate_taskmanager.runtime.messages import Report

REPORTS = get_args(Report)
SUBTASKS_A_MS = 250
LONGEST_WAIT_MS = 20
MAX_BATCH_BYTES = 1 << 20
MAX_BATCH_REPORTS = 1_000


@dataclass(frozen=True, slots=True)
class Company:
    """With whom a subtask reports. here: subtasks of its attempt on this task manager; wait_ms: for the others."""

    here: int
    wait_ms: int

    @classmethod
    def of(cls, here: int, subtasks: int) -> Company:
        """subtasks: of the whole job. A small one, whose leader has time for each report, waits for nothing."""
        return cls(here, min(subtasks // SUBTASKS_A_MS, LONGEST_WAIT_MS) if here > 1 else 0)


ALONE = Company(1, 0)


class ReportBatches:
    """Of all attempts on this task manager, in the order of the reports. For one thread at a time."""

    def __init__(self) -> None:
        self._waiting: list[Report] = []
        self._size_bytes = 0
        self._due_ms = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, report: Report, size_bytes: int, company: Company, now_ms: int) -> bool:
        """Adds one. size_bytes: of it, encoded. True when what waits is to be taken now."""
        due_ms = now_ms + company.wait_ms
        self._due_ms = min(self._due_ms, due_ms) if self._waiting else due_ms
        self._waiting.append(report)
        self._size_bytes += size_bytes
        is_full = self._size_bytes >= MAX_BATCH_BYTES or len(self._waiting) >= min(company.here, MAX_BATCH_REPORTS)
        return is_full or _is_urgent(report) or now_ms >= self._due_ms

    def next_due_ms(self) -> int | None:
        """When it is to be taken at the latest; None when nothing waits."""
        return self._due_ms if self._waiting else None

    def take(self) -> Any:
        """The message for what waits, which is something."""
        reports, self._waiting, self._size_bytes = self._waiting, [], 0
        return reports[0] if len(reports) == 1 else ReportBatch(tuple(map(BatchedReport, reports)))


def _is_urgent(report: Report) -> bool:
    """Whether the leader has to act on it."""
    is_failure = isinstance(report, SubtaskReport) and report.phase is SubtaskPhase.SUBTASK_FAILED
    return is_failure or isinstance(report, DeclineCheckpoint)
