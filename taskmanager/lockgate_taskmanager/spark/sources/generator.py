"""The generator: rows (partition, sequence), at a rate or as fast as possible. Offsets are sequence numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lockgate_common.backlog import Backlog
from lockgate_proto.messages import GeneratorSource, Operator, SplitRange, SplitState

from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading
from lockgate_taskmanager.task.program import Exhausted, Idle, UserError

_ROW_BYTES = 16
_ROWS_A_LINE = 50_000  # Spark expands each line's range to an array
_QUANTUM_MS = 10  # a partition with a rate waits until it has so much time's worth of rows
_LONGEST_IDLE_MS = 60_000  # a thread that wakes up early checks again
_MOST_ROWS_A_S = 1e12  # rows per second of a partition; a higher rate means as fast as possible


class RangeSource:
    """Makes rows. Rates count from the first read of an attempt: missed rows are not caught up."""

    def __init__(self, source: GeneratorSource, by_split: bool = False) -> None:
        self._by_split = by_split
        self._rate = source.rows_per_second if source.rows_per_second < _MOST_ROWS_A_S else 0.0
        self._splits: dict[str, SplitState] = {}
        self._complete = False
        self._started: dict[str, tuple[int, int]] = {}  # (ms, offset) by split, from which its rate counts

    @property
    def complete(self) -> bool:
        return self._complete

    def spec(self) -> LeafSpec | None:
        return LeafSpec(Form.RANGES)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            if not split.split.isdecimal():
                raise UserError(f"a generator's splits are partition numbers, not '{split.split}'")
            self._splits.setdefault(split.split, split)  # assigned twice: it continues at its offset
        self._complete = self._complete or complete

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(self._splits.values())

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:
        live = [split for split in self._splits.values() if split.end < 0 or split.offset < split.end]
        if not live:
            return Exhausted() if self._complete else Idle(UNASSIGNED_WAIT_MS)
        share = max(1, budget_bytes // _ROW_BYTES // (1 if self._by_split else len(live)))
        lines: list[str] = []
        ranges: list[SplitRange] = []
        rows = 0
        full = False
        for split in live:
            due = self._due(split, now_ms)
            count = min(share, due)
            full = full or due > share
            if count > 0:
                ranges.append(SplitRange(split.split, split.offset, split.offset + count))
                lines += _lines(split.split, split.offset, count)
                moved = SplitState(split=split.split, offset=split.offset + count, end=split.end)
                self._splits[split.split] = moved
                rows += count
                if self._by_split:
                    return replace(self._alone(moved, lines, rows, full), may_pause=not self._is_over(now_ms))
        if not rows:
            return Idle(max(_QUANTUM_MS, int(min(1000 / self._rate, _LONGEST_IDLE_MS))))
        content, is_over = ["".join(lines).encode()], self._is_over(now_ms)
        return Reading(content, rows, rows * _ROW_BYTES, full=full, ranges=tuple(ranges), may_pause=not is_over)

    def _is_over(self, now_ms: int) -> bool:
        """True when the next read has something to say: more rows, or the end."""
        return bool(self.backlog(now_ms)) or all(split.offset == split.end for split in self._splits.values())

    def backlog(self, now_ms: int) -> Collection[str]:
        return {
            name for name, split in self._splits.items() if split.offset != split.end and self._due(split, now_ms) > 0
        }

    def unread(self, now_ms: int) -> Backlog:
        """What is due at its rate, or left of its rows; unknown where there is neither."""
        if self._rate <= 0 and any(split.end < 0 for split in self._splits.values()):
            return Backlog()
        return Backlog(records=sum(self._due(split, now_ms) for split in self._splits.values()))

    def close(self) -> None:
        pass

    def _alone(self, split: SplitState, lines: list[str], rows: int, full: bool) -> Reading:
        """A batch of one split, which then goes to the end of the queue."""
        self._splits[split.split] = self._splits.pop(split.split)
        text = ["".join(lines).encode()]
        ranges = (SplitRange(split.split, split.offset - rows, split.offset),)
        if split.offset == split.end:
            return Reading(text, rows, rows * _ROW_BYTES, full, ended=(split.split,), ranges=ranges)
        return Reading(text, rows, rows * _ROW_BYTES, full, split.split, ranges=ranges)

    def _due(self, split: SplitState, now_ms: int) -> int:
        """Rows of a split that are due now."""
        left = split.end - split.offset if split.end >= 0 else 1 << 62
        if self._rate <= 0:
            return left
        since_ms, since_offset = self._started.setdefault(split.split, (now_ms, split.offset))
        due = since_offset + int((now_ms - since_ms) * self._rate / 1000) - split.offset
        worth_it = max(1, int(self._rate * _QUANTUM_MS / 1000))
        return min(left, due) if due >= min(worth_it, left) else 0


def _lines(partition: str, first: int, count: int) -> list[str]:
    starts = range(first, first + count, _ROWS_A_LINE)
    return [f"{partition},{start},{min(start + _ROWS_A_LINE, first + count) - 1}\n" for start in starts]


def unpaced(operator: Operator) -> Operator:
    """The same source without a pace, if it is a generator: for what it has made before."""
    if not isinstance(operator.kind, GeneratorSource):
        return operator
    return replace(operator, kind=replace(operator.kind, rows_per_second=0.0))
