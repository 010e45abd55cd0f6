"""Rows that wait for partners in memory: found by key and by a range of time, forgotten when time has passed them.

Rows are filed under their key and a *span* of time as long as the range that is looked for, so that whoever looks finds
candidates in two spans at most, however many rows a key has. What one batch brings for a key and span lies together, a
*run*; the runs of a key and span are a chain. A look-up costs by the rows asked for and by the candidates.

Keys are told apart by their hash alone: who asks compares the keys of what is found.

Forgotten rows leave their place behind; when those outnumber the others, the others move together, which costs no
more than what was forgotten.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from taskmanager.state import stored
from taskmanager.state.changes import Changed, Changes
from taskmanager.state.growing import GrowingArray
from taskmanager.state.hashing import HashTable, mixed
from taskmanager.state.increments import Increment
from taskmanager.state.layout import EVENT_TIME, HASH
from taskmanager.state.pieces import FrozenPieces, Pieces
from taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray
_NONE = -1
_FEW_ROWS = 4096  # places of forgotten rows that do not matter
_AT_ONCE = 1 << 18  # candidates looked at together, which bounds memory
_BYTES_AT_ONCE = 64 << 20  # the same, by their size on average
_LEAST_COUNTED_MS = 1000  # rows are counted by steps of at least so long


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """See heap.Frozen: the rows as they were, but for those at or before `about.purged_until`, as for `forget`.

    A file has the rows, then `__hash` and `__event_time`; an increment has those that were added, and tells by
    `about.purged_until` which are gone.
    """

    rows: FrozenPieces
    hashes: Array
    times: Array
    about: stored.About
    added: Changed

    @property
    def until(self) -> int:
        """Rows at or before this time are left out."""
        return MIN_WATERMARK if self.about.purged_until is None else self.about.purged_until

    @property
    def version(self) -> int:
        """See heap.Frozen."""
        return self.added.version

    def to_buffer(self) -> pa.Buffer:
        """See heap.Frozen."""
        return self._written(np.flatnonzero(self.times > self.until), self._taken, is_increment=False)

    def increment(self, since: int) -> Increment | None:
        """See heap.Frozen."""
        rows = self.added.since(since)
        if rows is None:
            return None
        rows = rows[self.times[rows] > self.until]
        if 2 * len(rows) > np.count_nonzero(self.times > self.until):
            return None
        return Increment(self._written(rows, lambda some: stored.replacing(self._taken(some)), is_increment=True))

    def release(self) -> None:
        """See heap.Frozen. Nothing is kept for it: rows are only added, and never changed."""

    def _written(self, rows: Array, take: stored.Take, *, is_increment: bool) -> pa.Buffer:
        return stored.write(self.hashes[rows], lambda places: take(rows[places]), self.about, is_increment=is_increment)

    def _taken(self, rows: Array) -> pa.RecordBatch:
        """Some rows as they are stored."""
        columns = [*self.rows.take(rows).columns, pa.array(self.hashes[rows]), pa.array(self.times[rows])]
        return pa.RecordBatch.from_arrays(columns, [*self.rows.schema.names, HASH, EVENT_TIME])


class BufferedRows:
    """See the module and WaitingRows. Used from the subtask's own thread."""

    def __init__(self, schema: pa.Schema, span_ms: int, *, is_tracked: bool = False) -> None:
        """schema: of the rows; span_ms: length of the ranges that are looked for, both ends included.

        is_tracked: it is remembered when rows were added, for increments.
        """
        self._schema = schema
        self._span_ms = span_ms
        self._step_ms = max(span_ms // 16, _LEAST_COUNTED_MS)
        self._changes = Changes(is_tracked)
        self._begin()

    def _begin(self) -> None:
        self._pieces = Pieces(self._schema)
        self._hashes = GrowingArray(np.int64, 0)
        self._times = GrowingArray(np.int64, 0)
        self._spans = HashTable()  # key and span to the first run of its chain
        self._chains = GrowingArray(np.int64, _NONE)
        self._next = GrowingArray(np.int64, _NONE)  # run to the next in the chain
        self._starts = GrowingArray(np.int64, 0)  # run to its first row
        self._counts = GrowingArray(np.int64, 0)  # run to its length
        self._in_step: dict[int, int] = {}  # rows by step of time, and the steps in order
        self._steps: list[int] = []
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._pieces) - self._forgotten

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        """See WaitingRows."""
        if rows.num_rows:
            first = len(self._pieces)
            self._file(rows, hashes, times)
            self._changes.mark(np.arange(first, len(self._pieces)), len(self._pieces))

    def restored(self) -> None:
        """What was added is what a snapshot holds."""
        self._changes.restored(len(self._pieces))

    def _file(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> Array:
        """Adds rows at the end; returns which of those given each is."""
        names = mixed(hashes, times // self._span_ms)
        order = np.argsort(names, kind="stable")
        spans, starts, counts = np.unique(names[order], return_index=True, return_counts=True)
        first = len(self._pieces)
        self._pieces.append(rows.take(pa.array(order)))
        self._hashes.append(hashes[order])
        self._times.append(times[order])
        slots = self._spans.find(spans)
        is_new = slots == _NONE
        slots[is_new] = self._spans.append(spans[is_new])
        self._chains.extend_to(self._spans.count)
        self._next.append(self._chains[slots])
        self._chains[slots] = np.arange(len(self._starts), len(self._starts) + len(spans))
        self._starts.append(first + starts)
        self._counts.append(counts)
        self._count(times)
        return order

    def near(self, hashes: Array, first: Array, last: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """See WaitingRows."""
        positions, starts, counts = self._candidates(hashes, first, last)
        bounds = np.cumsum(counts)
        at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(1, self._pieces.bytes_a_row)))
        begin = 0
        while begin < len(counts):
            done = int(bounds[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(bounds, done + at_once, "right")))
            here = slice(begin, end)
            asking = np.repeat(positions[here], counts[here])
            within = np.arange(len(asking)) - np.repeat(bounds[here] - counts[here] - done, counts[here])
            rows = np.repeat(starts[here], counts[here]) + within
            times = self._times[rows]
            fits = (times >= first[asking]) & (times <= last[asking]) & (self._hashes[rows] == hashes[asking])
            if fits.any():
                yield asking[fits], self._pieces.take(rows[fits])
            begin = end

    def forget(self, until: int) -> None:
        """See WaitingRows. Costs by the rows that are forgotten."""
        count = bisect.bisect_right(self._steps, (until + 1) // self._step_ms - 1)  # steps that are over
        self._forgotten += sum(self._in_step.pop(step) for step in self._steps[:count])
        del self._steps[:count]
        if self._forgotten > max(len(self), _FEW_ROWS):
            self._move_together(until)

    def purge(self, until: int) -> None:
        """See WaitingRows. Files hold nothing of that kind."""

    def freeze(self, about: stored.About) -> FrozenRows:
        """All rows but those at or before `about.purged_until`, as they are now. Microseconds."""
        added = self._changes.freeze(len(self._pieces))
        return FrozenRows(self._pieces.frozen(), self._hashes.values, self._times.values, about, added)

    def _candidates(self, hashes: Array, first: Array, last: Array) -> tuple[Array, Array, Array]:
        """Runs that may hold what is looked for: who asks, first row, number of rows."""
        found: list[tuple[Array, Array]] = []
        early, late = first // self._span_ms, last // self._span_ms
        everybody = np.arange(len(hashes))
        for positions, spans in ((everybody, early), (everybody[early != late], late[early != late])):
            slots = self._spans.find(mixed(hashes[positions], spans))
            asking, runs = positions[slots != _NONE], self._chains[slots[slots != _NONE]]
            while len(runs):
                found.append((asking, runs))
                following = self._next[runs]
                asking, runs = asking[following != _NONE], following[following != _NONE]
        nobody = np.zeros(0, np.int64)
        positions = np.concatenate([nobody, *(asking for asking, _ in found)])
        runs = np.concatenate([nobody, *(runs for _, runs in found)])
        return positions, self._starts[runs], self._counts[runs]

    def _count(self, times: Array) -> None:
        steps, counts = np.unique(times // self._step_ms, return_counts=True)
        for step, count in zip(steps.tolist(), counts.tolist(), strict=True):
            if step not in self._in_step:
                self._in_step[step] = 0
                bisect.insort(self._steps, step)
            self._in_step[step] += count

    def _move_together(self, until: int) -> None:
        pieces, hashes, times = self._pieces, self._hashes, self._times
        live = np.flatnonzero(times.values > until)
        self._begin()
        moved = [np.zeros(0, np.int64)]
        for start in range(0, len(live), _AT_ONCE):
            rows = live[start : start + _AT_ONCE]
            moved.append(rows[self._file(pieces.take(rows), hashes[rows], times[rows])])
        self._changes.moved(np.concatenate(moved), is_complete=True)  # of forgotten rows their time tells
