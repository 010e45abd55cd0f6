"""Deduplication by key: passes the first record of each key and drops the rest. Without a Spark job."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.late_clock import LateClock
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.processing_clock import ProcessingClock
from lockgate_taskmanager.state.rows.row_store import NEVER, Rows, RowSpec, RowStore, adopted, distinct
from lockgate_taskmanager.state.store import FrozenStore, Merged
from lockgate_taskmanager.task.program import SnapshotOrder

OWNER = "deduplicate"


class DeduplicateStore:
    """A row without content stands for a key that has been seen; it expires `ttl_ms` after that."""

    def __init__(self, spec: RowSpec, rows: RowStore, ttl_ms: int) -> None:
        """rows: with the schema of the records; ttl_ms: 0 for no limit."""
        self._spec, self._rows, self._ttl_ms = spec, rows, ttl_ms
        self._time, self._late_clock = ProcessingClock(), LateClock(spec.operator_id)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field for field in self._rows.record_schema if field.name != HASH])

    @property
    def partial_schema(self) -> pa.Schema:
        """The schema of the records, which are merged as they are."""
        return self._rows.record_schema

    def set_input_schema(self, schema: pa.Schema) -> None:
        self._rows.record_schema = adopted(self._spec, self._rows.record_schema, schema)

    def merge(self, partial: pa.Table) -> Merged:
        """Returns the records whose key is new. Costs in proportion to the records, not to the keys held."""
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        keys, numbers = distinct(partial, self._spec.keys)
        is_new = pc.is_null(self._rows.find(keys, self._time.now_ms)).to_numpy(zero_copy_only=False)
        fresh = np.flatnonzero(is_new)
        first = np.unique(numbers, return_index=True)[1]  # record of each key
        if len(fresh):
            never = np.full(len(fresh), NEVER)
            over = np.full(len(fresh), self._time.now_ms + self._ttl_ms) if self._ttl_ms else never
            payloads = pa.array([b""] * len(fresh), pa.binary())
            self._rows.put(keys.take(fresh), Rows(payloads, never, never, over))
        passed = partial.drop_columns([HASH]).take(pa.array(np.sort(first[fresh])))
        return Merged(partial.num_rows, passed)

    def advance(self, watermark_ms: int) -> pa.Table:
        """Event time has no effect here, but is part of snapshots."""
        self._rows.clock.advance(watermark_ms)
        return self.schema.empty_table()

    def go_on(self) -> pa.Table:
        """Nothing: no results depend on time."""
        return self.schema.empty_table()

    @property
    def has_more(self) -> bool:
        return False

    @property
    def is_settled(self) -> bool:
        return True

    def tick(self, unix_ms: int) -> None:
        """Deletes expired keys."""
        self._rows.expire(self._time.tick(unix_ms))
        self._late_clock.note(self._time.ahead_ms)

    def wakes_at(self) -> None:
        """Never: expired keys are not found in any case."""

    def warm_up(self) -> None:
        """There is no Spark job."""

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        return self._rows.snapshot(order)

    def close(self) -> None:
        self._rows.close()
