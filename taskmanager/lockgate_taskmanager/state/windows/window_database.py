"""The common part of windows and sessions in RocksDB: the database, and an in-memory state of some of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from lockgate_taskmanager.state.columns.arrays import one_batch
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.firing import FiringInTime
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.rocksdb.database_store import DatabaseStore
from lockgate_taskmanager.state.rocksdb.frozen_database import FrozenDatabase, TableForm
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import Merged
from lockgate_taskmanager.state.windows.pane_scan import Row
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.session_state import SessionState
from lockgate_taskmanager.state.windows.window_columns import apart
from lockgate_taskmanager.task.program import SnapshotOrder

State = TypeVar("State", PaneState, SessionState)


class HeldWindows(DatabaseStore, FiringInTime, Generic[State]):
    """A windowed store in RocksDB that loads the rows a batch needs into a `State`."""

    _spec: StoreSpec

    def __init__(
        self, spec: StoreSpec, schema: pa.Schema, kind: type[State], form: TableForm, folder: Path, memory_bytes: int
    ) -> None:
        """An empty store, or the database in `folder`. Raises UserError, OSError.

        schema: of the partial tables; kind: the class that implements the windows; form: of rows in the database.
        """
        assert spec.aggregation.window is not None
        self.clock = spec.clock(spec.aggregation.window.allowed_lateness_ms)
        self._spec = spec
        self._kind: type[State] = kind
        self._form = form
        self.partial_schema = schema
        self._empty: State = self._holding((), self.clock)
        self.schema = self._empty.schema
        super().__init__(spec, folder, memory_bytes)

    def merge(self, partial: pa.Table) -> Merged:
        """Merges a partial table: reads the rows that it may change, and writes those that it has changed."""
        if not partial.num_rows:
            return self._empty.merge(partial)
        batch = one_batch(partial)
        found = self._read(self._needed(apart(batch)[1]))
        working = self._holding(list(found.items()), self.clock)
        working.let_go()
        merged = working.merge(pa.Table.from_batches([batch]))
        self._put(working, found)
        return merged

    def _needed(self, batch: pa.RecordBatch) -> set[bytes]:
        """Names of the rows that a merge of these records, all with a time, may read."""
        raise NotImplementedError

    def _put(self, working: State, found: Mapping[bytes, bytes]) -> None:
        """Writes the changed rows. found: their values before."""
        raise NotImplementedError

    def _read(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """The rows that exist, by name."""
        wanted = sorted(names)
        found = zip(wanted, self.database.get(wanted), strict=True)
        return {name: value for name, value in found if value is not None}

    def snapshot(self, order: SnapshotOrder) -> FrozenDatabase:
        """The state as it is now. Takes microseconds, unless the copy of the previous barrier is not made yet."""
        return self._frozen(order, self._empty.about(), self._form)

    def _holding(self, rows: Sequence[Row], clock: EventClock) -> State:
        """A state with only these rows of the database, with `clock` as its event time."""
        made: State = self._kind(self._spec, self.partial_schema, clock=clock)
        if rows:
            made.take_up(state_file.rows_of([self._form.stored_batch(rows)], made.key_count))
        return made
