"""The common part of aggregate states by key and window, for all kinds of windows.

partial table --merge---> updates of windows that have fired, and late records
watermark ----advance--> results of the windows that are over; those whose lateness has passed are purged
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.aggregates.aggregate_state import AggregateState, records_in
from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns
from lockgate_taskmanager.state.columns.arrays import one_batch
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.firing import FiringInTime
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import Merged
from lockgate_taskmanager.state.windows.window_columns import WINDOW_FIELDS, apart, no_window, window_columns

Array = Any  # numpy.ndarray


class WindowState(AggregateState, FiringInTime):
    """Windowed aggregates in memory. Used from the subtask's own thread."""

    def __init__(
        self,
        spec: StoreSpec,
        schema: pa.Schema,
        choice: StateBackend | None = None,
        clock: EventClock | None = None,
    ) -> None:
        """clock: event time shared with other stores, None for a new one; the rest as in AggregateState."""
        assert spec.aggregation.window is not None
        super().__init__(spec, schema, choice)
        self._max_parallelism, self._owned = spec.max_parallelism, spec.key_groups
        lateness_ms = spec.aggregation.window.allowed_lateness_ms
        self.clock = spec.clock(lateness_ms) if clock is None else clock
        self.schema = pa.schema([*self._keys, *WINDOW_FIELDS, *self._results])

    def merge(self, partial: pa.Table) -> Merged:
        """Folds a partial table. Cost grows with its rows and the windows they touch, not with the rows held.

        `changed` holds the windows that have already fired and are still kept. Records for windows that are no longer
        kept, and records without a time, are dropped, counted and aggregated separately, the latter without a window.
        Raises DataError on overflow.
        """
        changed = self.schema.empty_table()
        if not partial.num_rows:
            return Merged(0, changed)
        batch = one_batch(partial)
        timeless, in_time = apart(batch)
        late: list[pa.Table] = []
        dropped = 0
        if timeless is not None:
            alone = self._alone(timeless)
            late.append(self._with_times(timeless, no_window(timeless.num_rows), alone))
            dropped += records_in(timeless)
        if in_time.num_rows:
            changed, is_late = self._fold(in_time)
            if is_late.any():
                too_late = in_time.filter(pa.array(is_late))
                alone = self._alone(too_late)
                late.append(self._with_times(too_late, window_columns(*self._bounds_of_late(too_late, alone)), alone))
                dropped += records_in(too_late)
        return Merged(records_in(batch), changed, pa.concat_tables(late) if late else None, dropped)

    def about(self) -> About:
        """The header of a snapshot."""
        clock = self.clock
        return self._spec.about(self.partial_schema, clock.before_end, self._purged_until(), clock.ahead, clock.gone)

    def restore(self, snapshots: Sequence[state_file.Stored]) -> None:
        self.clock.restore([snapshot.about for snapshot in snapshots])
        super().restore(snapshots)

    def let_go(self) -> None:
        """Drops windows that an earlier run kept longer, if a record could still join them."""

    def _fold(self, batch: pa.RecordBatch) -> tuple[pa.Table, Array]:
        """Folds records with a time. Returns the windows that changed after firing, and a mask of late records.

        Late records are not folded.
        """
        raise NotImplementedError

    def _bounds_of_late(self, batch: pa.RecordBatch, alone: AggregateColumns) -> tuple[Array, Array]:
        """Start and end of the window of each late row. alone: their aggregates."""
        raise NotImplementedError

    def _purged_until(self) -> int:
        """Rows at or before this time are gone."""
        raise NotImplementedError

    def _purge(self) -> None:
        """Drops rows that no window needs any more."""
        raise NotImplementedError

    def _passed(self, now: int) -> None:
        """Every due window has fired."""
        self.clock.advance(now)
        self._purge()

    def _alone(self, batch: pa.RecordBatch) -> AggregateColumns:
        """The aggregates of each row of a partial."""
        alone = self._new_columns()
        alone.reserve(batch.num_rows)
        alone.fold(np.arange(batch.num_rows), batch)
        return alone

    def _with_times(self, batch: pa.RecordBatch, times: Sequence[pa.Array], alone: AggregateColumns) -> pa.Table:
        return self._as_table(batch.select(self._keys.names), times, alone, np.arange(batch.num_rows))

    def _as_table(
        self, keys: pa.RecordBatch, times: Sequence[pa.Array], columns: AggregateColumns, rows: Array
    ) -> pa.Table:
        """Results. times: see WINDOW_FIELDS; columns, rows: where the aggregates are."""
        results = columns.results(rows)[: len(self._results)]
        return pa.Table.from_arrays([*keys.columns, *times, *self._marks(len(rows)), *results], schema=self.schema)

    def _marks(self, count: int) -> Sequence[pa.Array]:  # noqa: ARG002
        """Columns of `schema` between the window and the aggregates, of final results."""
        return ()
