"""What names one transaction of a sink: everything that an author's sink stages, commits or aborts at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"([A-Za-z0-9._-]+)~([A-Za-z0-9._-]+)~(\d+)~(\d+)~(\d+)")


@dataclass(frozen=True, slots=True)
class Transaction:
    """The rows that one subtask of a sink got between two barriers.

    run_id: of the job's run, unique for ever; operator_id: of the sink; subtask: which of them staged it, and in which
    attempt; checkpoint_id: of the barrier at its end, never used again in this run.
    """

    run_id: str
    operator_id: str
    subtask: int
    attempt: int
    checkpoint_id: int

    @property
    def name(self) -> str:
        """All of it as one text of letters, digits and `. _ - ~`: no two transactions have the same. See `parse`."""
        return f"{self.run_id}~{self.operator_id}~{self.subtask}~{self.attempt}~{self.checkpoint_id}"

    @staticmethod
    def parse(name: str) -> Transaction | None:
        """The transaction of that name; None when it is none."""
        found = _NAME.fullmatch(name)
        return Transaction(found[1], found[2], int(found[3]), int(found[4]), int(found[5])) if found else None
