"""Count windows of one subtask: records are counted by key, and windows that are complete give results at once.

    records --> elements, a row each in a row store, beside one with the number of records seen of the key
            --> results of the windows that the records complete

A batch reads the elements of the windows that it completes, and the incomplete one of each of its keys. It writes those
that it changes and later windows need. So its cost grows with its records and results, whatever is held, and where
batches are cut makes no difference, but for the order in which a sum adds up what a batch has of a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.columns.arrays import one_batch
from lockgate_taskmanager.state.counts.count_spec import SEEN, CountSpec, without_element
from lockgate_taskmanager.state.counts.elements import Elements
from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.state.rows.row_store import NEVER, Keys, Rows, RowStore, distinct
from lockgate_taskmanager.state.store import FrozenStore, Merged
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray
ELEMENTS_AT_ONCE = 1 << 16  # of the keys that are merged together, unless a single key has more


class CountState:
    """A KeyedStore. Used from the subtask's own thread."""

    def __init__(self, spec: CountSpec, rows: RowStore, elements: Elements) -> None:
        """rows: empty, or restored, with the schema of the records."""
        self._spec, self._rows, self._elements, self._shape = spec, rows, elements, elements.shape
        self.schema = elements.schema
        self.partial_schema = without_element(rows.record_schema)

    def merge(self, partial: pa.Table) -> Merged:
        """Merges records in their order. Raises DataError on overflow, and what a function raises."""
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        keys, numbers = distinct(partial, self._spec.key_names)
        batch = one_batch(partial).take(pa.array(np.argsort(numbers, kind="stable")))
        counts = np.bincount(numbers, minlength=len(keys))
        seen, behind = self._seen(keys), np.cumsum(counts)
        results = [self.schema.empty_table()]
        for some in self._portions(seen, seen + counts):
            records = batch.slice(behind[some[0]] - counts[some[0]], counts[some].sum())
            results.append(self._merged(keys.take(some), seen[some], counts[some], records))
        return Merged(batch.num_rows, pa.concat_tables(results))

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        return self._rows.snapshot(order)

    def close(self) -> None:
        self._rows.close()

    def _seen(self, keys: Keys) -> Array:
        """How many records there were of each key."""
        rows = self._rows.find(self._spec.elements_of(keys, np.full(len(keys), SEEN)), 0)
        seen = np.zeros(len(keys), np.int64)
        if rows.null_count < len(rows):
            (known,) = row_codec.decode(rows.drop_null().to_pylist(), [pa.int64()])
            seen[pc.is_valid(rows).to_numpy(zero_copy_only=False)] = known.to_numpy()
        return seen

    def _first_read(self, seen: Array, after: Array) -> Array:
        """The first element of each key that a merge reads or writes."""
        is_due = self._shape.due(seen, after) > 0
        return np.where(is_due, self._shape.first_kept(seen), seen // self._shape.element)

    def _portions(self, seen: Array, after: Array) -> Iterator[Array]:
        """Positions of keys that together have a bounded number of elements."""
        ends = np.cumsum(self._shape.behind(after) - self._first_read(seen, after))
        start = 0
        while start < len(seen):
            done = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + ELEMENTS_AT_ONCE, "right")))
            yield np.arange(start, stop)
            start = stop

    def _merged(self, keys: Keys, seen: Array, counts: Array, records: pa.RecordBatch) -> pa.Table:
        """Merges the records of some keys, which are in the order of the keys; returns the results."""
        shape, after = self._shape, seen + counts
        first = self._first_read(seen, after)
        sizes = shape.behind(after) - first
        offsets = np.cumsum(sizes) - sizes - first  # row = offset of the key + number of the element
        which, stored = _ranges(first, shape.behind(seen))
        payloads = self._rows.find(self._spec.elements_of(keys.take(which), stored), 0)
        assert not payloads.null_count, "elements before the last record are stored"
        ours, numbers = _ranges(seen, after)
        places, rows = offsets[which] + stored, offsets[ours] + numbers // shape.element
        self._elements.load(payloads.to_pylist(), places, int(sizes.sum()), records, rows)
        results = self._results(keys, seen, after, offsets)
        self._store(keys, seen, after, offsets)
        return results

    def _results(self, keys: Keys, seen: Array, after: Array, offsets: Array) -> pa.Table:
        """Of the windows that are complete now."""
        shape = self._shape
        which, numbers = _ranges(seen // shape.every + 1, after // shape.every + 1)
        if not len(which):
            return self.schema.empty_table()
        ends = numbers * shape.every
        starts = shape.start(ends)
        first, counts = offsets[which] + starts // shape.element, (ends - starts) // shape.element
        return self._elements.results(keys.columns.take(pa.array(which)), first, counts, starts, ends)

    def _store(self, keys: Keys, seen: Array, after: Array, offsets: Array) -> None:
        """Writes what has changed, and drops what no later window needs."""
        shape = self._shape
        before, kept = shape.first_kept(seen), shape.first_kept(after)
        changed = _ranges(np.maximum(kept, seen // shape.element), shape.behind(after))
        gone = _ranges(before, np.minimum(kept, shape.behind(seen)))
        every = np.arange(len(keys))
        which = np.concatenate([every, changed[0], gone[0]])
        numbers = np.concatenate([np.full(len(keys), SEEN), changed[1], gone[1]])
        values: list[bytes | None] = [*row_codec.encode([pa.array(after)])]
        values += self._elements.payloads(offsets[changed[0]] + changed[1])
        values += [None] * len(gone[0])
        never = np.full(len(which), NEVER)
        at = self._spec.elements_of(keys.take(which), numbers)
        self._rows.put(at, Rows(pa.array(values, pa.binary()), never, never, never))


def _ranges(starts: Array, stops: Array) -> tuple[Array, Array]:
    """Pairs of a position and a number, for each number from its start to before its stop."""
    counts = stops - starts
    return np.repeat(np.arange(len(starts)), counts), row_codec.spread(starts, counts)
