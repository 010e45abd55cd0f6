"""Windowed state as a store: in memory, with full snapshots and increments as keyed state has them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from lockgate_proto.messages import OperatorState, SessionWindow

from taskmanager.state.chains import Chains
from taskmanager.state.event_clock import EventClock
from taskmanager.state.heap import FrozenHeap, frozen_heap, pieces_of, take_up
from taskmanager.state.increments import latest_in_time
from taskmanager.state.sessions import SessionState
from taskmanager.state.store import Merged, StoreSpec
from taskmanager.state.windowed import WindowedState
from taskmanager.task.program import SnapshotOrder


class WindowStore:
    """See KeyedStore. Also `advance`: event time goes on, and windows fire."""

    def __init__(self, spec: StoreSpec, schema: pa.Schema, full_every: int) -> None:
        """schema: of the partial tables. Raises UserError when a column or type does not fit."""
        window = spec.aggregation.window
        kind = SessionState if window is not None and isinstance(window.kind, SessionWindow) else WindowedState
        self._operator_id = spec.operator_id
        self._chains = Chains(full_every)
        self._state: WindowedState | SessionState = kind(
            spec.aggregation,
            schema,
            spec.max_parallelism,
            spec.key_groups,
            is_tracked=self._chains.is_incremental,
        )
        self.schema = self._state.schema
        self.partial_schema = self._state.partial_schema

    @classmethod
    def restored(
        cls, spec: StoreSpec, states: Sequence[OperatorState], checkpoint_id: int, full_every: int
    ) -> WindowStore:
        """From what one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        chains = pieces_of(spec, states)
        store = cls(spec, chains[0][0].partial_schema, full_every)
        state = store._state
        state.restore([latest_in_time(chain, state.key_count, state.time_column) for chain in chains])
        take_up(store._chains, checkpoint_id, states, chains, spec.key_groups)
        return store

    @property
    def clock(self) -> EventClock:
        """How far event time has come."""
        return self._state.clock

    def merge(self, partial: pa.Table) -> Merged:
        """See KeyedStore."""
        return self._state.merge(partial)

    def advance(self, watermark_ms: int) -> pa.Table:
        """See Fires."""
        return self._state.advance(watermark_ms)

    def go_on(self) -> pa.Table:
        """See Fires."""
        return self._state.go_on()

    @property
    def is_settled(self) -> bool:
        """See Fires."""
        return self._state.is_settled

    @property
    def has_more(self) -> bool:
        """See Fires."""
        return self._state.has_more

    def snapshot(self, order: SnapshotOrder) -> FrozenHeap:
        """See KeyedStore. Microseconds."""
        return frozen_heap(self._operator_id, self._state.freeze(), self._chains, order)

    def close(self) -> None:
        """See KeyedStore. There is nothing but memory."""
