"""What windows and sessions in a RocksDB database have in common: the database, and a state of some of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from taskmanager.state import stored
from taskmanager.state.event_clock import EventClock
from taskmanager.state.frozen_rocks import FrozenRocks, TableForm, endless_chains, frozen_rocks
from taskmanager.state.held_database import opened
from taskmanager.state.pane_scan import Row
from taskmanager.state.sessions import SessionState
from taskmanager.state.store import StoreSpec
from taskmanager.state.windowed import WindowedState
from taskmanager.task.program import SnapshotOrder

State = TypeVar("State", WindowedState, SessionState)


class HeldWindows(Generic[State]):
    """See the module. The database's folder is removed by `close`."""

    def __init__(
        self, spec: StoreSpec, schema: pa.Schema, kind: type[State], form: TableForm, folder: Path, memory_bytes: int
    ) -> None:
        """An empty one, or with the database that lies in `folder`. Raises UserError, OSError.

        schema: of the partial tables; kind: what knows what windows are; form: of rows in the database.
        """
        assert spec.aggregation.window is not None
        self.clock = EventClock(spec.max_parallelism, spec.key_groups, spec.aggregation.window.allowed_lateness_ms)
        self.chains = endless_chains()
        self._spec = spec
        self._kind: type[State] = kind
        self._form = form
        self.partial_schema = schema
        self._empty: State = self._holding((), self.clock)
        self.schema = self._empty.schema
        self.database = opened(folder, memory_bytes)

    def snapshot(self, order: SnapshotOrder) -> FrozenRocks:
        """See KeyedStore. Microseconds, unless the copy of the barrier before is not made yet."""
        about = self._empty.about()
        return frozen_rocks(self._spec.operator_id, self.database, about, self.chains, order, self._form)

    def close(self) -> None:
        """See KeyedStore."""
        self.database.close()

    def _holding(self, rows: Sequence[Row], clock: EventClock) -> State:
        """A state with these rows of the database alone, which goes by `clock`."""
        spec = self._spec
        made: State = self._kind(
            spec.aggregation, self.partial_schema, spec.max_parallelism, spec.key_groups, clock=clock
        )
        if rows:
            made.take_up(stored.rows_of([self._form.stored_batch(rows)], made.key_count))
        return made
