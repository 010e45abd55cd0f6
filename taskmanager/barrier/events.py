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


Event = ElementArrived | BarrierArrived | InputEnded | CheckpointAborted


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
class AlignmentAborted:
    """A newer barrier overtook this checkpoint's: it can never be aligned here, decline it."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class AllInputsEnded:
    """No record follows on any channel."""


Effect = Deliver | Hold | Release | Aligned | AlignmentAborted | AllInputsEnded
