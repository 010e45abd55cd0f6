"""What happens to a BarrierHandler, and what it asks for in return."""

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
    """No record follows on `channel`. Barriers may."""

    channel: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The leader gave the checkpoint up."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class BarrierOvertakes:
    """The checkpoint is to be taken now, wherever its barriers are: the leader says so, or one was seen in a queue."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class LoopEnded:
    """Nothing circles any more: no record follows on any back edge, also on one that is held. Barriers may."""


Event = ElementArrived | BarrierArrived | InputEnded | CheckpointAborted | BarrierOvertakes | LoopEnded


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand `element` to the program."""

    channel: int
    element: Any


@dataclass(frozen=True, slots=True)
class Hold:
    """Take nothing more from `channel` until it is released."""

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
    """Freeze the state now. What channels outside `delivered` bring until their barrier belongs to the snapshot: every
    one of an unaligned barrier, the back edges of an aligned one.

    delivered: channels whose barrier has been taken; started_ms: when the first of them delivered it, or now.
    """

    barrier: Barrier
    started_ms: int
    delivered: frozenset[int]


@dataclass(frozen=True, slots=True)
class AlignmentAborted:
    """A newer barrier overtook this checkpoint's: it can never be aligned here, decline it."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class AllInputsEnded:
    """No record follows on any channel."""


Effect = Deliver | Hold | Release | Aligned | Overtaken | AlignmentAborted | AllInputsEnded
