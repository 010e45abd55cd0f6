"""The interface of every source, and the sizing of micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from lockgate_common.backlog import Backlog
from lockgate_proto.messages import EventTime, SplitRange, SplitState

from lockgate_taskmanager.task.program import Exhausted, Idle

if TYPE_CHECKING:
    from lockgate_taskmanager.spark.leaf import Content, LeafSpec

FIRST_BATCH_BYTES = 50_000
_GROWTH = 4
_TOLERANCE = 1.5
_CHEAP = 1.5  # times as long for twice as much
_LONGEST = 16  # times the target, which no larger batch may follow: barriers wait for a batch
UNASSIGNED_WAIT_MS = 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """A micro-batch's input. full: the budget was used up, so a larger one would have returned more.

    For a source that reads by split: split: the only one in it that continues, empty for none; ended: those that it has
    read to their ends. ranges: describes the records, in messages. other_s: of the call that returned it, the time that
    was spent on other batches; less than 0 where more was spent on this one in earlier calls. may_pause: it has all
    that was there, and more may come later; False where the source cannot know.
    """

    content: Content
    rows: int
    bytes: int
    full: bool
    split: str = ""
    ended: tuple[str, ...] = ()
    ranges: tuple[SplitRange, ...] = ()
    other_s: float = 0.0
    may_pause: bool = False


class Source(Protocol):
    """Reads the splits assigned to one subtask. Used from the subtask's thread.

    A source that reads *by split*, which event time needs, has at most one split in a batch that the batch does not
    read to its end, and takes its splits in turn.
    """

    def spec(self) -> LeafSpec | None:
        """The form of its batches; None while it is not known. Raises UserError."""
        ...

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """Adds splits, including those of a restored state.

        A split that is already assigned continues at its offset.
        """
        ...

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:
        """The next records, about `budget_bytes` of them; moves the offsets. Raises UserError, OSError."""
        ...

    def splits(self) -> tuple[SplitState, ...]:
        """Every assigned split with its offset."""
        ...

    def backlog(self, now_ms: int) -> Collection[str]:
        """The splits that have records waiting."""
        ...

    def unread(self, now_ms: int) -> Backlog:
        """How much is waiting, without any request. The cost does not depend on the number of files."""
        ...

    @property
    def complete(self) -> bool:
        """True when no further split will be assigned."""
        ...

    def close(self) -> None:
        """Closes open files."""
        ...


class BatchSizer:
    """Finds the batch size that takes `target_ms`: starts small, so that an attempt produces output soon, then
    grows. A batch that has read all there was is followed by a pause until `interval_ms` after its start.

    Where even a small batch takes longer, as on an overloaded machine, the Spark job takes its time whatever the size.
    Then smaller batches would only read less: the size is where a batch of twice as much takes half as long again.
    """

    def __init__(self, target_ms: int, max_bytes: int, interval_ms: int = 0) -> None:
        self._target_ms = target_ms
        self._interval_ms = interval_ms
        self._started_ms = self._next_ms = 0
        self._max_bytes = max_bytes
        self._floor = min(FIRST_BATCH_BYTES, max_bytes)
        self.budget_bytes = self._floor
        self._slow: list[float] = []  # durations of slow batches in a row, until there are two
        self._other: tuple[int, float] | None = None  # the budget before this one, and how long its slow batches took

    def pause(self, now_ms: int) -> Idle | None:
        """Until the next batch may start; None if that is now."""
        if now_ms < self._next_ms:
            return Idle(self._next_ms - now_ms)
        self._started_ms = now_ms
        return None

    def observed(self, size_bytes: int, took_ms: float, full: bool, may_pause: bool = False) -> None:
        """Learns from a batch that has run. One slow batch may be chance; two in a row are too large."""
        self._next_ms = self._started_ms + self._interval_ms if may_pause else 0
        if took_ms > _TOLERANCE * self._target_ms:
            self._slow.append(took_ms)
            if len(self._slow) > 1:
                self._change(full)
                self._slow.clear()
            return
        self._slow.clear()
        self._other = None
        if full:  # otherwise there was no more to read, which says nothing about a larger batch
            wanted = int(size_bytes * self._target_ms / max(took_ms, 1.0))
            self.budget_bytes = min(max(wanted, self.budget_bytes), self.budget_bytes * _GROWTH, self._max_bytes)

    def _change(self, full: bool) -> None:
        """After slow batches: halves the budget, or doubles it if that costs little and none of them was very long."""
        now, took_ms = self.budget_bytes, min(self._slow)
        larger = full and max(self._slow) <= _LONGEST * self._target_ms and self._is_larger_cheap(took_ms)
        self.budget_bytes = min(2 * now, self._max_bytes) if larger else max(self._floor, now // 2)
        if self.budget_bytes != now:
            self._other = now, took_ms

    def _is_larger_cheap(self, took_ms: float) -> bool:
        """By comparison with the budget before. At first only the smallest one is tried larger, once."""
        if self._other is None:
            return self.budget_bytes == self._floor
        other_bytes, other_ms = self._other
        if other_bytes < self.budget_bytes:
            return took_ms <= _CHEAP * other_ms
        return other_ms <= _CHEAP * took_ms


def rested(rest: Idle | Exhausted, declared: EventTime | None) -> Idle | Exhausted:
    """Limits a pause to the time after which a split counts as idle. declared: the event time of the source."""
    if declared is None or not declared.idle_after_ms or not isinstance(rest, Idle):
        return rest
    return replace(rest, wait_ms=min(rest.wait_ms, declared.idle_after_ms))
