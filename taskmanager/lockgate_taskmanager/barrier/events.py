"""Events and effects of a BarrierHandler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockgate_proto.messages import Barrier


@dataclass(frozen=True, slots=True)
class ElementArrived:
    """Records or a watermark, next in order on `channel` (index of the input channel, from 0)."""

    channel: int
    element: Any


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """A checkpoint barrier, next in order on `channel`."""

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class InputEnded:
    """No more records follow on `channel`; barriers may."""

    channel: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The leader has aborted the checkpoint; and_earlier: with all earlier ones."""

    checkpoint_id: int
    and_earlier: bool = False


@dataclass(frozen=True, slots=True)
class BarrierOvertakes:
    """Take the checkpoint now, before its barriers have arrived on all channels: the leader asked for it, or an
    unaligned barrier was seen in a queue.
    """

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class LoopEnded:
    """The loop has terminated: no more records follow on any back edge, held ones included. Barriers may."""


Event = ElementArrived | BarrierArrived | InputEnded | CheckpointAborted | BarrierOvertakes | LoopEnded


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand `element` to the program."""

    channel: int
    element: Any


@dataclass(frozen=True, slots=True)
class Hold:
    """Take nothing from `channel` until it is released."""

    channel: int


@dataclass(frozen=True, slots=True)
class Release:
    """Take elements from `channels` again."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    """Every channel has delivered the barrier: freeze the state now, before any further element.

    started_ms: monotonic time at which the first channel delivered it.
    """

    barrier: Barrier
    started_ms: int


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Freeze the state now. Elements that arrive on channels outside `delivered` before their barrier belong to the
    snapshot: for an unaligned barrier that is every such channel, for an aligned one only the back edges.

    delivered: channels whose barrier has been taken; started_ms: when the first of them delivered it, or now.
    """

    barrier: Barrier
    started_ms: int
    delivered: frozenset[int]


@dataclass(frozen=True, slots=True)
class AlignmentAborted:
    """A newer barrier arrived before this checkpoint was aligned. It can never be aligned here: decline it."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class AllInputsEnded:
    """No more records follow on any channel."""


Effect = Deliver | Hold | Release | Aligned | Overtaken | AlignmentAborted | AllInputsEnded
