"""Exactly-once barriers over N input channels: aligned ones, and unaligned ones that overtake.

            first barrier n                     last barrier n: Aligned(n), release all
    FLOWING ---------------> ALIGNING(n) -----> FLOWING
       ^                      |      |
       |   abort notice of n  |      | barrier m > n: n is lost, AlignmentAborted(n),
       +----------------------+      | release all, hold this channel
             release all             +--> FLOWING -> ALIGNING(m)

An unaligned barrier, or the leader's switch of n to unaligned, ends the alignment at once: Overtaken(n), release all.
Barriers of n that arrive later are ignored here; the input gate, which records the channels, still needs them.

A channel that has delivered n is held until every channel has. The caller leaves held elements in the (bounded)
channel, so that a held channel applies back-pressure to its sender instead of filling memory.

The head of a loop does not wait for its back edges: their barriers are only sent after its own snapshot. With the last
barrier n from outside it emits Overtaken(n), and records that arrive on a back edge before its barrier n belong to the
snapshot. A back edge whose barrier n arrives first, because another subtask of the head was faster, is held like any
channel: what follows on it is not part of n.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from lockgate_common.story import IllegalTransition, Story
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
    Hold,
    InputEnded,
    LoopEnded,
    Overtaken,
    Release,
)

STORY_LENGTH = 32


class AlignmentState(Enum):
    """Whether some channels have delivered a barrier that others have not."""

    FLOWING = "flowing"
    ALIGNING = "aligning"


ALLOWED: dict[AlignmentState, frozenset[AlignmentState]] = {
    AlignmentState.FLOWING: frozenset({AlignmentState.ALIGNING}),
    AlignmentState.ALIGNING: frozenset({AlignmentState.FLOWING}),
}


class BarrierHandler:
    """Pure. `channel_count` >= 1; channels are numbered from 0. feedback: the back edges among them, never all."""

    def __init__(self, channel_count: int, feedback: frozenset[int] = frozenset()) -> None:
        self._regular = frozenset(range(channel_count)) - feedback
        if not self._regular:
            raise ValueError("alignment needs at least one input channel that is not a back edge")
        self._count, self._feedback = channel_count, feedback
        self._state = AlignmentState.FLOWING
        self._current: Barrier | None = None
        self._started_ms = 0
        self._held: set[int] = set()
        self._ended: set[int] = set()
        self._highest = 0  # every id up to here is aligned, abandoned or aborted
        self._aborted: set[int] = set()  # aborted ids above _highest whose barriers may still arrive
        self._story = Story("alignment", STORY_LENGTH)

    @property
    def state(self) -> AlignmentState:
        """FLOWING or ALIGNING."""
        return self._state

    @property
    def held(self) -> frozenset[int]:
        """Channels from which nothing may be taken now."""
        return frozenset(self._held)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handles one event; returns the effects in order.

        Raises IllegalTransition when the caller breaks the contract.
        """
        match event:
            case ElementArrived(channel, element):
                self._check_open(channel, "a record")
                if channel in self._ended:
                    raise self._illegal(f"a record on channel {channel} after its end of input")
                return [Deliver(channel, element)]
            case BarrierArrived(channel, barrier):
                self._check_open(channel, f"barrier {barrier.checkpoint_id}")
                return self._barrier(channel, barrier, now_ms)
            case InputEnded(channel):
                self._check_open(channel, "end of input")
                return self._end(channel)
            case CheckpointAborted(checkpoint_id, and_earlier):
                return self._abort_up_to(checkpoint_id) if and_earlier else self._abort(checkpoint_id)
            case BarrierOvertakes(barrier):
                return self._overtake(barrier, frozenset(), now_ms)
            case LoopEnded():
                return [effect for channel in sorted(self._feedback) for effect in self._end(channel)]
            case _:
                assert_never(event)

    def _barrier(self, channel: int, barrier: Barrier, now_ms: int) -> list[Effect]:
        number = barrier.checkpoint_id
        self._story.note(f"barrier {number} on channel {channel}")
        if barrier.unaligned:
            return self._overtake(barrier, frozenset({channel}), now_ms)
        if number <= self._highest or number in self._aborted:
            return []
        effects: list[Effect] = []
        if self._current is not None and number > self._current.checkpoint_id:
            effects += self._abandon_current(number)
        if self._current is None:
            self._start_aligning(barrier, now_ms)
        self._held.add(channel)
        if not self._regular <= self._held:
            return [*effects, Hold(channel)]
        is_whole = len(self._held) == self._count
        delivered = frozenset(self._held)
        effects.append(
            Aligned(barrier, self._started_ms) if is_whole else Overtaken(barrier, self._started_ms, delivered)
        )
        self._held.discard(channel)  # was never announced as held
        return [*effects, *self._stop_aligning()]

    def _overtake(self, barrier: Barrier, delivered: frozenset[int], now_ms: int) -> list[Effect]:
        number = barrier.checkpoint_id
        self._story.note(f"barrier {number} overtakes")
        if number <= self._highest or number in self._aborted:
            return []
        if self._current is not None and self._current.checkpoint_id == number:
            delivered, started_ms = delivered | self._held, self._started_ms
            return [Overtaken(barrier, started_ms, delivered), *self._stop_aligning()]
        lost = self._abandon_current(number) if self._current is not None else []
        self._highest = number
        self._forget_old_aborts()
        return [*lost, Overtaken(barrier, now_ms, delivered)]

    def _abandon_current(self, newer: int) -> list[Effect]:
        assert self._current is not None
        lost = self._current.checkpoint_id
        reason = f"barrier {newer} arrived before every channel had delivered {lost}"
        return [AlignmentAborted(lost, reason), *self._stop_aligning()]

    def _start_aligning(self, barrier: Barrier, now_ms: int) -> None:
        self._move(AlignmentState.ALIGNING)
        self._current, self._started_ms = barrier, now_ms
        # A barrier of an older checkpoint can no longer be aligned: the channel that delivered this one will not
        # deliver the older one.
        self._highest = max(self._highest, barrier.checkpoint_id - 1)
        self._forget_old_aborts()

    def _stop_aligning(self) -> list[Effect]:
        assert self._current is not None
        self._move(AlignmentState.FLOWING)
        self._highest = self._current.checkpoint_id
        self._forget_old_aborts()
        self._current = None
        released = tuple(sorted(self._held))
        self._held.clear()
        return [Release(released)] if released else []

    def _end(self, channel: int) -> list[Effect]:
        self._story.note(f"end of input on channel {channel}")
        if channel in self._ended:
            return []
        self._ended.add(channel)
        return [AllInputsEnded()] if len(self._ended) == self._count else []

    def _abort(self, checkpoint_id: int) -> list[Effect]:
        self._story.note(f"abort of {checkpoint_id}")
        if self._current is not None and checkpoint_id == self._current.checkpoint_id:
            return self._stop_aligning()
        if checkpoint_id > self._highest:
            self._aborted.add(checkpoint_id)
        return []

    def _abort_up_to(self, checkpoint_id: int) -> list[Effect]:
        self._story.note(f"abort up to {checkpoint_id}")
        is_lost = self._current is not None and self._current.checkpoint_id <= checkpoint_id
        released = self._stop_aligning() if is_lost else []
        self._highest = max(self._highest, checkpoint_id)
        self._forget_old_aborts()
        return released

    def _forget_old_aborts(self) -> None:
        self._aborted = {number for number in self._aborted if number > self._highest}

    def _check_open(self, channel: int, event: str) -> None:
        if not 0 <= channel < self._count:
            raise self._illegal(f"{event} on channel {channel}, there are {self._count}")
        if channel in self._held:
            raise self._illegal(f"{event} taken from channel {channel} while it is held")

    def _move(self, state: AlignmentState) -> None:
        self._state = self._story.move(ALLOWED, self._state, state)

    def _illegal(self, event: str) -> IllegalTransition:
        return IllegalTransition(self._story.describe(f"{event} (state {self._state.name})"))
