"""At-least-once barriers over N input channels: counted, never held back.

    barrier n on the first channel ... records of every channel flow on ... barrier n on the last channel: Aligned(n)

Records that a fast channel delivers behind its barrier n are in snapshot n although the sources will read them again:
after a restore they count twice. In return no channel ever waits for another.
"""

from __future__ import annotations

from typing import assert_never

from lockgate_common.story import IllegalTransition
from lockgate_proto.messages import Barrier

from lockgate_taskmanager.barrier.events import (
    Aligned,
    AlignmentAborted,
    AllInputsEnded,
    BarrierArrived,
    BarrierOvertakes,
    CheckpointAborted,
    Deliver,
    Effect,
    ElementArrived,
    Event,
    InputEnded,
    LoopEnded,
)


class BarrierTracker:
    """Pure. `channel_count` >= 1; channels are numbered from 0. Several checkpoints may be in progress at a time."""

    def __init__(self, channel_count: int) -> None:
        if channel_count < 1:
            raise ValueError("barriers need at least one input channel")
        self._count = channel_count
        # by id: when its first barrier arrived, and the channels that have delivered it
        self._seen: dict[int, tuple[int, set[int]]] = {}
        self._ended: set[int] = set()
        self._highest = 0  # every id up to here has had its snapshot or never will
        self._aborted: set[int] = set()  # aborted ids above _highest whose barriers may still arrive

    @property
    def held(self) -> frozenset[int]:
        """Channels from which nothing may be taken now: always empty."""
        return frozenset()

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handles one event; returns the effects in order.

        Raises IllegalTransition when the caller breaks the contract.
        """
        match event:
            case ElementArrived(channel, element):
                self._check(channel, "a record")
                if channel in self._ended:
                    raise IllegalTransition(f"a record on channel {channel} after its end of input")
                return [Deliver(channel, element)]
            case BarrierArrived(channel, barrier):
                self._check(channel, f"barrier {barrier.checkpoint_id}")
                return self._barrier(channel, barrier, now_ms)
            case InputEnded(channel):
                self._check(channel, "end of input")
                return self._end(channel)
            case CheckpointAborted(checkpoint_id, and_earlier):
                return self._abort_up_to(checkpoint_id) if and_earlier else self._abort(checkpoint_id)
            case BarrierOvertakes(barrier):
                raise IllegalTransition(f"barrier {barrier.checkpoint_id} overtakes in a mode that holds no channel")
            case LoopEnded():
                raise IllegalTransition("a loop has ended in a subtask that is in no loop")
            case _:
                assert_never(event)

    def _barrier(self, channel: int, barrier: Barrier, now_ms: int) -> list[Effect]:
        number = barrier.checkpoint_id
        if number <= self._highest or number in self._aborted:
            return []
        started_ms, channels = self._seen.setdefault(number, (now_ms, set()))
        channels.add(channel)
        if len(channels) < self._count:
            return []
        # Every channel is past the barriers of older checkpoints: those that have not arrived by now never will.
        lost = sorted(older for older in self._seen if older < number)
        self._seen = {newer: known for newer, known in self._seen.items() if newer > number}
        self._aborted = {newer for newer in self._aborted if newer > number}
        self._highest = number
        reason = f"every channel delivered barrier {number} before it"
        return [*(AlignmentAborted(older, reason) for older in lost), Aligned(barrier, started_ms)]

    def _end(self, channel: int) -> list[Effect]:
        if channel in self._ended:
            return []
        self._ended.add(channel)
        return [AllInputsEnded()] if len(self._ended) == self._count else []

    def _abort(self, checkpoint_id: int) -> list[Effect]:
        self._seen.pop(checkpoint_id, None)
        if checkpoint_id > self._highest:
            self._aborted.add(checkpoint_id)
        return []

    def _abort_up_to(self, checkpoint_id: int) -> list[Effect]:
        self._seen = {newer: known for newer, known in self._seen.items() if newer > checkpoint_id}
        self._highest = max(self._highest, checkpoint_id)
        self._aborted = {newer for newer in self._aborted if newer > self._highest}
        return []

    def _check(self, channel: int, event: str) -> None:
        if not 0 <= channel < self._count:
            raise IllegalTransition(f"{event} on channel {channel}, there are {self._count}")
