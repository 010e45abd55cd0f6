"""The waiting rows of an interval join in memory: found by key and a range of time, dropped when time has passed them.

Rows are indexed by key and by a *span* of time as long as the range of a look-up, so a look-up finds its candidates in
at most two spans, however many rows a key has. The rows of one batch for a key and span form a *run*; the runs of a key
and span form a chain. The cost of a look-up depends on its rows and their candidates.

Keys are distinguished by their hash alone: the caller compares the keys of the rows that are found.

Dropped rows leave gaps; when those outnumber the other rows, the store is compacted, which costs no more than the drops
did.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.arrays import expanded, numpy_of
from lockgate_taskmanager.state.columns.growing import GrowingArray
from lockgate_taskmanager.state.columns.hashing import HashTable, mixed
from lockgate_taskmanager.state.format.state_file import Stored
from lockgate_taskmanager.state.heap.snapshots import FrozenHeap
from lockgate_taskmanager.state.heap.timed_heap import TimedHeap
from lockgate_taskmanager.state.join.join_spec import SideSpec
from lockgate_taskmanager.state.join.waiting import columns_of
from lockgate_taskmanager.state.layout import EVENT_TIME, HASH
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray
_NONE = -1
_FEW_ROWS = 4096  # no compaction for fewer dropped rows
_AT_ONCE = 1 << 18  # candidates looked at together, which bounds memory
_BYTES_AT_ONCE = 64 << 20  # the same, by their size on average
_LEAST_COUNTED_MS = 1000  # rows are counted by steps of at least this length


class JoinHeap(TimedHeap):
    """The WaitingRows in memory. Used from the subtask's own thread."""

    _spec: SideSpec

    def __init__(self, spec: SideSpec, schema: pa.Schema, choice: StateBackend) -> None:
        """schema: of the rows; choice: how snapshots are to be."""
        self._span_ms = spec.span_ms
        self._step_ms = max(self._span_ms // 16, _LEAST_COUNTED_MS)
        super().__init__(spec, columns_of(schema), choice)

    def _begin(self) -> None:
        super()._begin()
        self._spans = HashTable()  # key and span to the first run of its chain
        self._chains = GrowingArray(np.int64, _NONE)
        self._next = GrowingArray(np.int64, _NONE)  # run to the next in the chain
        self._starts = GrowingArray(np.int64, 0)  # run to its first row
        self._counts = GrowingArray(np.int64, 0)  # run to its length
        self._in_step: dict[int, int] = {}  # rows by step of time, and the steps in order
        self._steps: list[int] = []

    def __len__(self) -> int:
        return len(self._pieces) - self._forgotten

    def restore(self, snapshots: Sequence[Stored]) -> None:
        for snapshot in snapshots:
            table = pa.Table.from_batches(snapshot.batches, snapshot.schema)
            for batch in table.combine_chunks().to_batches():
                self.add(batch.select(self._schema.names), numpy_of(batch, HASH), numpy_of(batch, EVENT_TIME))
        self._changes.restored(len(self._pieces))
        self.restored_from = [snapshot.about for snapshot in snapshots]

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
        asked, starts, counts = self._candidates(hashes, first, last)
        for rows, which in expanded(starts, counts, min(_AT_ONCE, _BYTES_AT_ONCE // max(1, self._pieces.bytes_a_row))):
            positions, times = asked[which], self._times[rows]
            fits = (times >= first[positions]) & (times <= last[positions]) & (self._hashes[rows] == hashes[positions])
            if fits.any():
                yield positions[fits], self._pieces.take(rows[fits])

    def forget(self, until: int) -> None:
        """Drops rows with a time at or before `until`. Costs in proportion to those."""
        count = bisect.bisect_right(self._steps, (until + 1) // self._step_ms - 1)  # steps that are over
        self._forgotten += sum(self._in_step.pop(step) for step in self._steps[:count])
        del self._steps[:count]
        if self._forgotten > max(len(self), _FEW_ROWS):
            self._move_together(until)

    def snapshot(self, order: SnapshotOrder, about: About, later: Sequence[FrozenHeap] = ()) -> FrozenHeap:
        return replace(self._frozen_at(order, about), piece=self._spec.piece, later=later)

    def _candidates(self, hashes: Array, first: Array, last: Array) -> tuple[Array, Array, Array]:
        """Runs with candidates: position of the look-up, first row, number of rows."""
        found: list[tuple[Array, Array]] = []
        early, late = first // self._span_ms, last // self._span_ms
        all_lookups = np.arange(len(hashes))
        for positions, spans in ((all_lookups, early), (all_lookups[early != late], late[early != late])):
            slots = self._spans.find(mixed(hashes[positions], spans))
            asking, runs = positions[slots != _NONE], self._chains[slots[slots != _NONE]]
            while len(runs):
                found.append((asking, runs))
                following = self._next[runs]
                asking, runs = asking[following != _NONE], following[following != _NONE]
        nothing = np.zeros(0, np.int64)
        positions = np.concatenate([nothing, *(asking for asking, _ in found)])
        runs = np.concatenate([nothing, *(runs for _, runs in found)])
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
