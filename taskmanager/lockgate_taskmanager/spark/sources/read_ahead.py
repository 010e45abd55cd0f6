"""At most once: records are read ahead and processed only when the position behind them is durable.

    source --read--> unmarked --barrier n--> marked n --n or a later one is complete--> released --read--> the chain

Checkpoint n stores the positions behind everything read so far. A restart from it goes on there: nothing is processed
twice, even if an attempt that was cut off goes on with what was released to it. The records between its barrier and its
positions are lost, processed or not, because state and sinks of the checkpoint lack them; their number is known.

A savepoint loses nothing: it stores the positions before the records that wait, and takes their marks back, so that
none of them is processed before another checkpoint is complete.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import CheckpointMode, JobGraph, SplitRange, SplitState

from lockgate_taskmanager.spark.leaf import Content, LeafSpec
from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading, Source
from lockgate_taskmanager.task.program import Exhausted, Idle

FIRST_BYTES = 1 << 20
MOST_BYTES = 64 << 20


def is_at_most_once(graph: JobGraph) -> bool:
    """True for a job whose records are never processed twice."""
    return graph.checkpoints is not None and graph.checkpoints.mode is CheckpointMode.AT_MOST_ONCE


@dataclass(slots=True)
class _Waiting:
    """A batch that is not processed. read_s: what reading it has taken. mark: the first checkpoint whose positions lie
    behind it; 0: none yet.
    """

    reading: Reading
    read_s: float
    mark: int = 0


def _fit(first: Reading, second: Reading, budget_bytes: int) -> bool:
    """Whether they can be one batch. While nothing may be processed, a slow source is read in tiny ones, and each would
    cost a Spark job. Event time needs to know in which split a batch continues, so that has to be the same.
    """
    is_same = first.split == second.split and not (first.ended or second.ended)
    return is_same and first.bytes + second.bytes <= budget_bytes


def _are_apart(first: Reading, second: Reading) -> bool:
    """Whether they have no split in common. That of records without ranges is not known."""
    splits = {found.split for found in first.ranges}
    return bool(splits and second.ranges) and splits.isdisjoint(found.split for found in second.ranges)


def _merged(first: Reading, second: Reading) -> Reading:
    if isinstance(first.content, pa.Table):
        content: Content = pa.concat_tables([first.content, second.content])
    else:
        content = [*first.content, *second.content]
    ranges: dict[str, SplitRange] = {}
    for found in (*first.ranges, *second.ranges):
        before = ranges.get(found.split, found)
        ranges[found.split] = SplitRange(found.split, before.start, found.end)
    return Reading(
        content,
        first.rows + second.rows,
        first.bytes + second.bytes,
        first.full or second.full,
        first.split,
        ranges=tuple(ranges.values()),
        may_pause=second.may_pause,
    )


class ReadAhead:
    """A Source in front of another one. Each batch that waits for its mark costs memory, and is lost in a failure; so
    what may wait grows only while it is too little to last until the next checkpoint.
    """

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: in seconds."""
        self.inner = source
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._released = 0  # of `_waiting`, from the left
        self._limit_bytes = FIRST_BYTES
        self._unreleased_bytes = 0
        self._was_short = False  # there was nothing to process, and more to read than was allowed
        self._is_rewound = False  # the newest snapshot is a savepoint

    @property
    def complete(self) -> bool:
        return self.inner.complete

    def spec(self) -> LeafSpec | None:
        return self.inner.spec()

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        self.inner.assign(splits, complete)

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:
        """The next released batch; reads on meanwhile."""
        started = self._clock()
        rest = self._read_on(budget_bytes, now_ms)
        if self._released:
            self._released -= 1
            item = self._waiting.popleft()  # each batch is measured on its own
            other_s, may_pause = self._clock() - started - item.read_s, item.reading.may_pause and not self._waiting
            return replace(item.reading, other_s=other_s, may_pause=may_pause)
        if rest is None and self._has_room:
            return Idle(0)  # it can read on
        if rest is None:
            self._was_short = True
        if isinstance(rest, Idle) or not self._waiting:
            return rest or Idle(UNASSIGNED_WAIT_MS)
        return Idle(UNASSIGNED_WAIT_MS, is_held=True)  # until a checkpoint is complete, which wakes the subtask

    def splits(self) -> tuple[SplitState, ...]:
        return self.inner.splits()

    def backlog(self, now_ms: int) -> Collection[str]:
        waiting = {found.split for item in self._waiting for found in item.reading.ranges}
        return waiting.union(self.inner.backlog(now_ms))

    def unread(self, now_ms: int) -> Backlog:
        found = self.inner.unread(now_ms)
        rows = sum(item.reading.rows for item in self._waiting)
        size = sum(item.reading.bytes for item in self._waiting)
        return Backlog(
            None if found.records is None else found.records + rows,
            None if found.bytes is None else found.bytes + size,
            found.splits,
        )

    def close(self) -> None:
        self.inner.close()

    def freeze(self, checkpoint_id: int, is_savepoint: bool) -> int:
        """A snapshot is taken: call it before `stored`. Returns how many records a restart from it loses."""
        self._is_rewound = is_savepoint
        if is_savepoint:
            self._take_back()
            return sum(item.reading.rows for item in self._waiting if not item.reading.ranges)  # cannot be read again
        for item in self._waiting:
            item.mark = item.mark or checkpoint_id
        return sum(item.reading.rows for item in self._waiting)

    def stored(self, splits: Sequence[SplitState]) -> tuple[SplitState, ...]:
        """The splits with the positions that belong into the snapshot being taken."""
        if not self._is_rewound:
            return tuple(splits)
        starts: dict[str, int] = {}
        for item in self._waiting:
            for found in item.reading.ranges:
                starts.setdefault(found.split, found.start)
        return tuple(
            replace(split, offset=starts[split.split], seen=max(split.offset, split.seen))
            if split.split in starts
            else split
            for split in splits
        )

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: what it marked, or an earlier one, may be processed."""
        released = 0
        while released < len(self._waiting) and 0 < self._waiting[released].mark <= checkpoint_id:
            released += 1
        fresh = [self._waiting[number].reading.bytes for number in range(self._released, released)]
        if released > self._released:
            self._released = released
            self._unreleased_bytes -= sum(fresh)
            self._limit_bytes = self._next_limit(sum(fresh))
            self._was_short = False

    def _next_limit(self, released_bytes: int) -> int:
        if self._was_short:
            return min(MOST_BYTES, 2 * self._limit_bytes)
        return (
            max(FIRST_BYTES, self._limit_bytes // 2) if released_bytes < self._limit_bytes // 4 else self._limit_bytes
        )

    @property
    def _has_room(self) -> bool:
        return self._unreleased_bytes < self._limit_bytes

    def _read_on(self, budget_bytes: int, now_ms: int) -> Idle | Exhausted | None:
        """Reads a batch ahead; returns why there is none, or None."""
        if not self._has_room:
            return None
        started = self._clock()
        found = self.inner.read(budget_bytes, now_ms)
        if not isinstance(found, Reading):
            return found
        read_s = self._clock() - started
        self._unreleased_bytes += found.bytes
        item = self._host(found, budget_bytes)
        if item is None:
            self._waiting.append(_Waiting(found, read_s))
        else:
            item.reading, item.read_s = _merged(item.reading, found), item.read_s + read_s
        return None

    def _host(self, found: Reading, budget_bytes: int) -> _Waiting | None:
        """The batch that takes in the new one. It is never in front of records of the same split: they would be put out
        in another order, and the position that a savepoint stores for the split would be behind some that wait.
        """
        for item in self._unmarked():
            if _fit(item.reading, found, budget_bytes):
                return item
            if not _are_apart(item.reading, found):
                return None
        return None

    def _unmarked(self) -> Iterator[_Waiting]:
        """Batches that no snapshot has marked yet, the newest first."""
        for item in reversed(self._waiting):
            if item.mark:
                return
            yield item

    def _take_back(self) -> None:
        self._released = 0
        self._unreleased_bytes = sum(item.reading.bytes for item in self._waiting)
        for item in self._waiting:
            item.mark = 0
