"""The consequences of many kills, by what they struck at. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lockgate_devtools.drill.model import Kill, Mode, Target


@dataclass(frozen=True, slots=True)
class Spread:
    """Of times in ms."""

    p50: float
    p90: float
    p99: float
    worst: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread | None:
        """By nearest rank; None without values."""
        if not values:
            return None
        ordered = sorted(values)
        p50, p90, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9, 0.99))
        return Spread(p50, p90, p99, ordered[-1])

    def to_json(self) -> dict[str, float]:
        """The form in the report file."""
        return {"p50": self.p50, "p90": self.p90, "p99": self.p99, "worst": self.worst}


@dataclass(frozen=True, slots=True)
class Consequences:
    """Of all kills with one target. interruption: to the first record, where a leader or an attempt follows; commit: to
    the first checkpoint. adopted: how often the running attempt went on under a new leader; in_part: how often
    only a part of the job restarted.
    """

    target: Target
    kills: tuple[Kill, ...]
    interruption: Spread | None
    commit: Spread | None
    adopted: int
    in_part: int
    restarted_subtasks: int
    records_read_again: int

    def to_json(self) -> dict[str, Any]:
        """The form in the report file."""
        return {
            "target": self.target.value,
            "kills": len(self.kills),
            "adopted": self.adopted,
            "in_part": self.in_part,
            "first_record_ms": self.interruption.to_json() if self.interruption else None,
            "first_checkpoint_ms": self.commit.to_json() if self.commit else None,
            "restarted_subtasks": self.restarted_subtasks,
            "records_read_again": self.records_read_again,
        }


def by_target(kills: Iterable[Kill]) -> tuple[Consequences, ...]:
    """In the order of Target, without those that were never struck."""
    found: dict[Target, list[Kill]] = {target: [] for target in Target}
    for kill in kills:
        found[kill.target].append(kill)
    return tuple(_consequences(target, mine) for target, mine in found.items() if mine)


def _consequences(target: Target, kills: Sequence[Kill]) -> Consequences:
    return Consequences(
        target,
        tuple(kills),
        Spread.of([kill.first_record_ms for kill in kills if kill.first_record_ms is not None]),
        Spread.of([kill.first_checkpoint_ms for kill in kills if kill.first_checkpoint_ms is not None]),
        sum(kill.mode is Mode.REATTACH for kill in kills),
        sum(kill.mode is not None and kill.mode.is_in_part for kill in kills),
        sum(kill.restarted_subtasks or 0 for kill in kills),
        sum(kill.records_read_again or 0 for kill in kills),
    )
