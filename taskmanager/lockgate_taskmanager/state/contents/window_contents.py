"""The contents of windows in one subtask: records wait until their windows are over, and are then handed out.

    records ---merge---> held by key group and pane; those whose windows are all over are late
    watermark --due----> the records of each key and window that is over, in portions

A record is held once, however many windows it is in. Portions are cut as in `firing`: the state is settled behind one
that ends with a key group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.columns.arrays import numpy_of, one_batch
from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.held_records import GroupRecords, HeldRecords
from lockgate_taskmanager.state.event_clock import Reached
from lockgate_taskmanager.state.join.waiting import columns_of
from lockgate_taskmanager.state.layout import EVENT_TIME, HASH
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.program import SnapshotOrder
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

Array = Any  # numpy.ndarray
BYTES_AT_ONCE = 64 << 20  # of the records of a portion, unless those of one window are more


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of a merge. records: merged; late: those without a window that is still to come, or without a time."""

    records: int
    late: pa.Table


@dataclass(frozen=True, slots=True)
class Calls:
    """Records of windows that are over. Those of one key and window are adjacent, in order of time.

    numbers: rise from one key and window to the next; starts, ends: of the window, in milliseconds.
    """

    rows: pa.Table
    numbers: Array
    starts: Array
    ends: Array


@dataclass(frozen=True, slots=True)
class DuePortion:
    """Some calls that are due. is_settled, is_last: see `firing.Portion`."""

    calls: tuple[Calls, ...]
    is_settled: bool
    is_last: bool = False


class WindowContents:
    """Used from the subtask's own thread. schema: of the records; partial_schema: the same as they come in."""

    def __init__(self, spec: ContentsSpec, held: HeldRecords, incoming: pa.Schema) -> None:
        """held: empty, or restored; incoming: columns of the records with their hashes and times."""
        self._spec, self._held, self._shape = spec, held, spec.shape
        self.partial_schema = incoming
        self.schema = columns_of(incoming)
        self.clock = spec.clock()
        if held.restored_from:
            self.clock.restore(held.restored_from)
            until = max(about.purged_until for about in held.restored_from)
            # the end of an input drops all of them, and the clock does not keep it; of several states, each has
            # stored only what it still held
            if len(held.restored_from) == 1 and self._shape.expired_until(self.clock.now) < until:
                held.purge(until)

    def merge(self, partial: pa.Table) -> Accepted:
        """Adds records. Cost grows with these."""
        if not partial.num_rows:
            return Accepted(0, self.schema.empty_table())
        batch = one_batch(partial)
        given, hashes = batch.column(EVENT_TIME), numpy_of(batch, HASH)
        has_time = pc.is_valid(given).to_numpy(zero_copy_only=False)
        times = pc.fill_null(given, 0).to_numpy(zero_copy_only=False)
        is_late = ~has_time | self._shape.is_expired(self._panes_of(times), self.clock.kept.of(hashes))
        rows = batch.select(self.schema.names)
        if is_late.any():
            late = rows.filter(pa.array(is_late))
            rows, hashes, times = rows.filter(pa.array(~is_late)), hashes[~is_late], times[~is_late]
        else:
            late = rows.slice(0, 0)
        self._held.add(rows, hashes, times)
        return Accepted(batch.num_rows, pa.Table.from_batches([late]))

    def due(self, watermark_ms: int) -> Iterator[DuePortion]:
        """Advances event time. Leaves `clock` there, after the last portion. Cost grows with what is due."""
        now, before = max(watermark_ms, self.clock.now), self.clock.reached
        waiting = self._held.panes.until(now, self._shape.fired_until(before.least))
        ends = self._shape.due(waiting, before.least, now)
        gathered: list[Calls] = []
        count = size = 0
        found = self._held.between(self._shape.start(ends[0]), ends[-1]) if ends else iter(())
        for records in found:
            if (count >= firing.ROWS_AT_ONCE or size >= BYTES_AT_ONCE) and now != MAX_WATERMARK:
                self.clock.come_to(now, range(self._spec.key_groups.start, records.group))
                yield DuePortion(tuple(gathered), is_settled=True)
                gathered, count, size = [], 0, 0
            for calls in self._calls(records, before, now):
                if count >= firing.ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
                    yield DuePortion(tuple(gathered), is_settled=False)
                    gathered, count, size = [], 0, 0
                gathered.append(calls)
                count += len(calls.numbers)
                size += calls.rows.nbytes
        self.clock.advance(now)
        self._held.forget(self._shape.expired_until(self.clock.now))
        yield DuePortion(tuple(gathered), is_settled=True, is_last=True)

    def next_due_ms(self) -> int:
        """No window ends before this; NEVER when there is none."""
        due = self._shape.next_due(self._held.panes.all(), self.clock.reached.least)
        return NEVER if due is None else due

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        """The records as they are now. Raises OSError."""
        clock, until = self.clock, self._shape.expired_until(self.clock.now)
        about = self._spec.about(self.partial_schema, clock.before_end, until, clock.ahead, clock.gone)
        return self._held.snapshot(order, about)

    def close(self) -> None:
        """Releases memory and scratch files. Idempotent."""
        self._held.close()

    def _calls(self, records: GroupRecords, before: Reached, now: int) -> Iterator[Calls]:
        """The calls of one key group, in portions. before: earlier event time, whose windows have fired."""
        rows, times = pa.Table.from_batches(records.rows), records.times
        # those that are over now, without those that were over before
        first, last = self._shape.kept_ends(self._panes_of(times), now, before.of(records.hashes))
        is_due = np.flatnonzero(last >= first)
        if not len(is_due):
            return
        first, last, slide = first[is_due], last[is_due], self._shape.slide_ms
        every = self._numbers(records)
        for low, high in _blocks(first, last, slide, firing.ROWS_AT_ONCE):
            begin = np.maximum(first, low)
            counts = np.maximum((np.minimum(last, high) - begin) // slide + 1, 0)
            which = np.repeat(np.arange(len(first)), counts)
            ends = begin[which] + (np.arange(len(which)) - (np.cumsum(counts) - counts)[which]) * slide
            places = is_due[which]
            yield from self._cut_calls(rows, times, places, every[places], ends)

    def _cut_calls(self, rows: pa.Table, times: Array, places: Array, keys: Array, ends: Array) -> Iterator[Calls]:
        """Calls of the records at `places`, each with its key's number and a window's end."""
        order = np.lexsort((times[places], keys, ends))
        places, keys, ends = places[order], keys[order], ends[order]
        is_next = np.diff(keys, prepend=-1).astype(bool) | np.diff(ends, prepend=0).astype(bool)
        numbers = np.cumsum(is_next)
        at_once = min(firing.ROWS_AT_ONCE, BYTES_AT_ONCE * len(times) // max(1, rows.nbytes))
        bounds = [*np.flatnonzero(is_next).tolist(), len(places)]
        for start, end in _cut(bounds, max(1, at_once)):
            mine = slice(start, end)
            taken = rows.take(pa.array(places[mine]))
            yield Calls(taken, numbers[mine], self._shape.start(ends[mine]), ends[mine])

    def _numbers(self, records: GroupRecords) -> Array:
        """For each record the number of its key."""
        names = list(self._spec.keys)
        index = KeyIndex(pa.schema([self.schema.field(name) for name in names]))
        numbers, at = [np.zeros(0, np.int64)], 0
        for batch in records.rows:
            numbers.append(index.rows_of(batch.select(names), records.hashes[at : at + batch.num_rows]))
            at += batch.num_rows
        return np.concatenate(numbers)

    def _panes_of(self, times: Array) -> Array:
        return times - (times - self._shape.offset_ms) % self._shape.pane_ms


def _cut(bounds: list[int], at_once: int) -> Iterator[tuple[int, int]]:
    """Ranges of about `at_once` rows that end at bounds, of which the first is 0 and the last the number of rows."""
    start = 0
    for bound, following in zip(bounds[1:], [*bounds[2:], None], strict=True):
        if following is None or following - start > at_once:
            if bound > start:
                yield start, bound
            start = bound


def _blocks(first: Array, last: Array, slide: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Ranges of ends, both included, with about `at_once` pairs of record and end, or one end that has more.

    first, last: ends of each record's windows, one or more. So memory does not grow with the windows of a record.
    """
    low, until = int(first.min()), int(last.max())
    while low <= until:

        def fits(steps: int, low: int = low) -> bool:
            high = low + steps * slide
            pairs = np.maximum((np.minimum(last, high) - np.maximum(first, low)) // slide + 1, 0)
            return int(pairs.sum()) <= at_once

        most, good, bad = (until - low) // slide, 0, 1
        while bad <= most and fits(bad):
            good, bad = bad, bad * 2
        bad = min(bad, most + 1)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        high = low + good * slide
        yield low, high
        rest = first[last > high]
        low = max(high + slide, int(rest.min())) if len(rest) else until + slide
