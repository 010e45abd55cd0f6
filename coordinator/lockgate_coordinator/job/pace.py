"""How long one subtask takes for its work, measured by what another one takes for its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockgate_proto.messages import SubtaskEffort

NOTHING = SubtaskEffort()


@dataclass(frozen=True, slots=True)
class EffortWindow:
    """What a subtask did for a while. wall_ms: how long that was; the rest as in SubtaskEffort."""

    wall_ms: int
    busy_us: int
    batches: int
    records: int
    size_bytes: int
    quickest_us: int

    @property
    def busy_share(self) -> float:
        """How much of the time its operators ran; a batch counts when it ends, so that it may be more than 1."""
        return self.busy_us / 1_000 / max(1, self.wall_ms)


def effort_window(before: SubtaskEffort, now: SubtaskEffort, wall_ms: int) -> EffortWindow:
    """What lies between two reports of one subtask in one attempt."""
    return EffortWindow(
        wall_ms,
        now.busy_us - before.busy_us,
        now.batches - before.batches,
        now.records - before.records,
        now.size_bytes - before.size_bytes,
        now.quickest_us,
    )


def together(parts: Sequence[EffortWindow]) -> EffortWindow:
    """One stretch of several of one subtask, oldest first, at least one."""
    return EffortWindow(
        sum(part.wall_ms for part in parts),
        sum(part.busy_us for part in parts),
        sum(part.batches for part in parts),
        sum(part.records for part in parts),
        sum(part.size_bytes for part in parts),
        parts[-1].quickest_us,
    )


def times_as_long(own: EffortWindow, other: EffortWindow) -> float:
    """How many times as long `own` took as it would have taken where `other` ran; rather too little than too much.

    A batch costs something for itself and something for each record. What it costs for itself is between nothing and
    the quickest batch of `other`, and records are alike by number or by size: of all that can be, the longest time is
    expected. So neither small batches nor large records make a subtask look slow. Both have done something.
    """
    expected_us = max(
        _expected_us(own, other, share, each_us)
        for share in _shares(own, other)
        for each_us in (0, min(other.quickest_us, other.busy_us // other.batches))
    )
    return own.busy_us / max(1.0, expected_us)


def _shares(own: EffortWindow, other: EffortWindow) -> list[float]:
    """How much `own` had to do for each record, or byte, of `other`."""
    shares = [own.records / other.records]
    if own.size_bytes and other.size_bytes:
        shares.append(own.size_bytes / other.size_bytes)
    return shares


def _expected_us(own: EffortWindow, other: EffortWindow, share: float, each_us: int) -> float:
    return each_us * own.batches + (other.busy_us - each_us * other.batches) * share
