"""Aligned exactly-once barriers over N input channels.

            first barrier n                     last barrier n: Aligned(n), release all
    FLOWING ---------------> ALIGNING(n) -----> FLOWING
       ^                      |      |
       |   abort notice of n  |      | barrier m > n: n is lost, AlignmentAborted(n),
       +----------------------+      | release all, hold this channel
             release all             +--> FLOWING -> ALIGNING(m)

A channel that has delivered n is held until every channel has. Whoever feeds the handler keeps held elements in
the channel (bounded), so that a held channel slows its sender down instead of filling memory here.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from lockgate_proto.messages import Barrier

from taskmanager.barrier.errors import IllegalTransition
from taskmanager.barrier.events import (
    Aligned,
    AlignmentAborted,
    AllInputsEnded,
    BarrierArrived,
    CheckpointAborted,
    Deliver,
    Effect,
    ElementArrived,
    Event,
    Hold,
    InputEnded,
    Release,
)

STORY_LENGTH = 32


class AlignmentState(Enum):
    """Whether some channels are ahead of others by a barrier."""

    FLOWING = "flowing"
    ALIGNING = "aligning"


ALLOWED: dict[AlignmentState, frozenset[AlignmentState]] = {
    AlignmentState.FLOWING: frozenset({AlignmentState.ALIGNING}),
    AlignmentState.ALIGNING: frozenset({AlignmentState.FLOWING}),
}


class BarrierHandler:
    """Pure. `channel_count` >= 1; channels are numbered from 0."""

    def __init__(self, channel_count: int) -> None:
        if channel_count < 1:
            raise ValueError("alignment needs at least one input channel")
        self._count = channel_count
        self._state = AlignmentState.FLOWING
        self._current: Barrier | None = None
        self._started_ms = 0
        self._held: set[int] = set()
        self._ended: set[int] = set()
        self._highest = 0  # every id up to here is aligned, abandoned or aborted
        self._aborted: set[int] = set()  # aborted ids above _highest whose barriers may still come
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    @property
    def state(self) -> AlignmentState:
        """FLOWING or ALIGNING."""
        return self._state

    @property
    def held(self) -> frozenset[int]:
        """Channels from which nothing may be taken now."""
        return frozenset(self._held)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes one event and says what to do, in order. Raises IllegalTransition when the caller breaks the rules."""
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
            case CheckpointAborted(checkpoint_id):
                return self._abort(checkpoint_id)

    def _barrier(self, channel: int, barrier: Barrier, now_ms: int) -> list[Effect]:
        number = barrier.checkpoint_id
        self._tell(f"barrier {number} on channel {channel}")
        if number <= self._highest or number in self._aborted:
            return []
        effects: list[Effect] = []
        if self._current is not None and number > self._current.checkpoint_id:
            lost = self._current.checkpoint_id
            effects.append(AlignmentAborted(lost, f"barrier {number} came before every channel had delivered {lost}"))
            effects.extend(self._stop_aligning())
        if self._current is None:
            self._start_aligning(barrier, now_ms)
        self._held.add(channel)
        if len(self._held) < self._count:
            return [*effects, Hold(channel)]
        effects.append(Aligned(barrier, self._started_ms))
        self._held.discard(channel)  # was never announced as held
        return [*effects, *self._stop_aligning()]

    def _start_aligning(self, barrier: Barrier, now_ms: int) -> None:
        self._move(AlignmentState.ALIGNING)
        self._current, self._started_ms = barrier, now_ms
        # A barrier of an older checkpoint can no longer be aligned: the channel that sent this one will not send it.
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
        self._tell(f"end of input on channel {channel}")
        if channel in self._ended:
            return []
        self._ended.add(channel)
        return [AllInputsEnded()] if len(self._ended) == self._count else []

    def _abort(self, checkpoint_id: int) -> list[Effect]:
        self._tell(f"abort of {checkpoint_id}")
        if self._current is not None and checkpoint_id == self._current.checkpoint_id:
            return self._stop_aligning()
        if checkpoint_id > self._highest:
            self._aborted.add(checkpoint_id)
        return []

    def _forget_old_aborts(self) -> None:
        self._aborted = {number for number in self._aborted if number > self._highest}

    def _check_open(self, channel: int, what: str) -> None:
        if not 0 <= channel < self._count:
            raise self._illegal(f"{what} on channel {channel}, there are {self._count}")
        if channel in self._held:
            raise self._illegal(f"{what} taken from channel {channel} while it is held")

    def _move(self, state: AlignmentState) -> None:
        if state not in ALLOWED[self._state]:
            raise self._illegal(f"{self._state.value} -> {state.value}")
        self._state = state

    def _tell(self, line: str) -> None:
        self._story.append(line)

    def _illegal(self, what: str) -> IllegalTransition:
        return IllegalTransition(f"{what} (state {self._state.value}; before: {'; '.join(self._story) or 'nothing'})")
