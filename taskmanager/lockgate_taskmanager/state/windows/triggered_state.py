"""Windows that also fire early, when enough records have come, or when their time has come.

Each key and window has a row of its own, see `rows_shape_of`: a record is folded into the rows of all its windows. A
hidden last aggregate counts the records of each row since it last fired. It is stored like the others, so a restored
store knows what is new, and fires after as many records as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import StateBackend

from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns
from lockgate_taskmanager.state.columns.arrays import distinct, numpy_of
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.firing import ROWS_AT_ONCE, Portion
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.layout import HASH, IS_EARLY, PANE, PENDING
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import Merged
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.window_columns import WINDOW_FIELDS
from lockgate_taskmanager.state.windows.window_rows import in_each_window, merged_in_parts

Array = Any  # numpy.ndarray
_FIELD = pa.field(IS_EARLY, pa.bool_())
_FEW_ROWS = 4096  # noted without looking for those that were noted before


class TriggeredState(PaneState):
    """Windows with a trigger in memory. Used from the subtask's own thread."""

    def __init__(
        self,
        spec: StoreSpec,
        schema: pa.Schema,
        choice: StateBackend | None = None,
        *,
        clock: EventClock | None = None,
    ) -> None:
        """As PaneState."""
        super().__init__(spec, schema, choice, clock=clock)
        assert spec.trigger is not None
        assert self._shape.whole is not None
        self._trigger, self._whole = spec.trigger, self._shape.whole
        self._new: list[Array] = []  # rows that may have new records for a firing by the clock
        self._new_count = 0  # in all of these, with repetitions
        self.schema = self.schema.insert(len(self._keys) + len(WINDOW_FIELDS), _FIELD)

    @property
    def has_new(self) -> bool:
        """Whether some window may have records that are in no result yet."""
        return bool(self._new)

    def fire_new(self) -> pa.Table:
        """The first portion of the early results of the windows with new records. Others follow, see Firing."""
        return self.begin(self._new_portions(), self.schema)

    def fire_early(self, rows: Array, least: int) -> pa.Table:
        """Early results of distinct rows whose window is not over and which have at least `least` new records."""
        rows = rows[self._columns.pending_of(rows) >= least]
        ends = self._shape.last_end(numpy_of(self._index.keys_at(rows), PANE))
        is_open = ~self._shape.is_over(ends, self.clock.reached.of(self._hashes[rows]))
        rows, ends = rows[is_open], ends[is_open]
        fired = self._table(rows, ends, self._columns, rows)
        self._columns.reset(rows, "" if self._trigger.purge else PENDING)
        self._changes.mark(rows, len(self._index))
        at = self.schema.get_field_index(IS_EARLY)
        return fired.set_column(at, _FIELD, pa.array(np.ones(len(rows), np.bool_)))

    def merge(self, partial: pa.Table) -> Merged:
        return merged_in_parts(super().merge, partial, self._whole)

    def take_up(self, rows: state_file.StoredRows) -> None:
        super().take_up(rows)
        self._note(np.arange(len(self._index)))

    def _fold(self, batch: pa.RecordBatch) -> tuple[pa.Table, Array]:
        is_late = self._whole.is_expired(numpy_of(batch, PANE), self.clock.kept.of(numpy_of(batch, HASH)))
        return super()._fold(in_each_window(batch, self._whole))[0], is_late

    def _bounds_of_late(self, batch: pa.RecordBatch, alone: AggregateColumns) -> tuple[Array, Array]:  # noqa: ARG002
        ends = self._whole.last_end(numpy_of(batch, PANE))
        return self._whole.start(ends), ends

    def _fired_again(self, keys: pa.RecordBatch, rows: Array, panes: Array) -> pa.Table:
        again = super()._fired_again(keys, rows, panes)
        early = self.fire_early(rows, self._trigger.every_count) if self._trigger.every_count else None
        self._note(rows)
        return again if early is None else pa.concat_tables([again, early])

    def _marks(self, count: int) -> Sequence[pa.Array]:
        return [pa.array(np.zeros(count, np.bool_))]

    def _move_together(self) -> None:
        super()._move_together()
        self._new, self._new_count = [], 0
        self._note(np.arange(len(self._index)))

    def _note(self, rows: Array) -> None:
        """Notes those rows that have new records."""
        if not self._trigger.every_ms:
            return
        mine = rows[self._columns.pending_of(rows) > 0]
        if not len(mine):
            return
        self._new.append(mine)
        self._new_count += len(mine)
        if self._new_count > 2 * len(self._new[0]) + _FEW_ROWS:  # so this costs no more than the batches did
            self._new = [distinct(np.concatenate(self._new))]
            self._new_count = len(self._new[0])

    def _new_portions(self) -> Iterator[Portion]:
        if not self._new:
            return
        rows = distinct(np.concatenate(self._new))
        self._new, self._new_count = [], 0
        for start in range(0, len(rows), ROWS_AT_ONCE):
            fired = self.fire_early(rows[start : start + ROWS_AT_ONCE], 1)
            yield Portion(fired, is_settled=True, is_last=start + ROWS_AT_ONCE >= len(rows))
