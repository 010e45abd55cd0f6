"""Compares how long two subtasks take for their work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockgate_proto.messages import SubtaskEffort

NOTHING = SubtaskEffort()


@dataclass(frozen=True, slots=True)
class EffortWindow:
    """The effort of a subtask during `wall_ms`; the other fields as in SubtaskEffort."""

    wall_ms: int
    busy_us: int
    batches: int
    records: int
    size_bytes: int
    quickest_us: int

    @property
    def busy_share(self) -> float:
        """The share of time for which its operators ran. A batch counts when it ends, so it may be more than 1."""
        return self.busy_us / 1_000 / max(1, self.wall_ms)


def effort_window(before: SubtaskEffort, now: SubtaskEffort, wall_ms: int) -> EffortWindow:
    """The effort between two reports of one subtask in one attempt."""
    return EffortWindow(
        wall_ms,
        now.busy_us - before.busy_us,
        now.batches - before.batches,
        now.records - before.records,
        now.size_bytes - before.size_bytes,
        now.quickest_us,
    )


def together(parts: Sequence[EffortWindow]) -> EffortWindow:
    """The sum of several windows of one subtask, oldest first, at least one."""
    return EffortWindow(
        sum(part.wall_ms for part in parts),
        sum(part.busy_us for part in parts),
        sum(part.batches for part in parts),
        sum(part.records for part in parts),
        sum(part.size_bytes for part in parts),
        parts[-1].quickest_us,
    )


def times_as_long(own: EffortWindow, other: EffortWindow) -> float:
    """How many times as long `own` took as it would have taken where `other` ran; a lower bound.

    A batch has a fixed cost and a cost for each record. The fixed cost is between 0 and the quickest batch of `other`,
    and records are comparable by number or by size; of all these estimates the longest time is expected. So neither
    small batches nor large records make a subtask look slow. Both windows must contain work.
    """
    expected_us = max(
        _expected_us(own, other, share, each_us)
        for share in _shares(own, other)
        for each_us in (0, min(other.quickest_us, other.busy_us // other.batches))
    )
    return own.busy_us / max(1.0, expected_us)


def _shares(own: EffortWindow, other: EffortWindow) -> list[float]:
    """The work of `own` relative to that of `other`, by records and by bytes."""
    shares = [own.records / other.records]
    if own.size_bytes and other.size_bytes:
        shares.append(own.size_bytes / other.size_bytes)
    return shares


def _expected_us(own: EffortWindow, other: EffortWindow, share: float, each_us: int) -> float:
    return each_us * own.batches + (other.busy_us - each_us * other.batches) * share
