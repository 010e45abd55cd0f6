"""What a drill has found so far, which counts even if it ends early."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockgate_devtools.drill.model import RecordCheck, Report
from lockgate_devtools.drill.round import RoundResult


@dataclass
class Tally:
    """The results of the rounds, the last of which may not be over. is_over: every kill is done, or a round failed."""

    seed: int
    rounds: list[RoundResult] = field(default_factory=list)
    is_over: bool = False

    @property
    def kills(self) -> int:
        """How many are done."""
        return sum(len(found.kills) for found in self.rounds)

    @property
    def has_failed(self) -> bool:
        """Something wrong was found. A round that is not over has no records yet, which is not wrong."""
        return any(found.problems or found.records.lost or found.records.duplicated for found in self.rounds)

    def report(self, stopped: str = "") -> Report:
        """stopped: why no more rounds follow, if anything else than their end is the reason."""
        rounds = self.rounds
        return Report(
            self.seed,
            tuple(kill for found in rounds for kill in found.kills),
            RecordCheck(
                sum(found.records.expected for found in rounds),
                sum(found.records.lost for found in rounds),
                sum(found.records.duplicated for found in rounds),
            ),
            sum(found.completed for found in rounds),
            sum(found.aborted for found in rounds),
            tuple(problem for found in rounds for problem in found.problems),
            "" if self.is_over else stopped,
        )
