"""Windows that also fire early, in a RocksDB database. Their rows are those of `pane_database`.

For firings by the clock the names of changed rows stay in memory until the next one. If they are too many, and after a
restore, when they are not known, that firing looks at all rows of open windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.firing import Portion
from lockgate_taskmanager.state.rocksdb.engine import ROWS_AT_ONCE
from lockgate_taskmanager.state.rocksdb.frozen_database import group_key
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import Merged
from lockgate_taskmanager.state.windows.pane_database import PaneDatabase
from lockgate_taskmanager.state.windows.pane_scan import Row
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.pane_table import pane_key
from lockgate_taskmanager.state.windows.triggered_state import TriggeredState
from lockgate_taskmanager.state.windows.window_rows import in_each_window, merged_in_parts

_MOST_NAMES = 500_000  # some 50 MB


class TriggeredDatabase(PaneDatabase):
    """The windowed store of windows with a trigger in RocksDB."""

    _state = TriggeredState

    def __init__(self, spec: StoreSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> None:
        super().__init__(spec, schema, folder, memory_bytes)
        assert spec.trigger is not None
        assert self._shape.whole is not None
        self._whole = self._shape.whole
        self._by_clock = spec.trigger.every_ms > 0
        self._new: set[bytes] = set()  # rows that may have new records for a firing by the clock
        self._is_unknown = False  # which ones have

    @property
    def has_new(self) -> bool:
        """Whether some window may have records that are in no result yet."""
        return self._is_unknown or bool(self._new)

    def fire_new(self) -> pa.Table:
        """The first portion of the early results of the windows with new records. Others follow, see Firing."""
        return self.begin(self._new_portions(), self.schema)

    def merge(self, partial: pa.Table) -> Merged:
        return merged_in_parts(super().merge, partial, self._whole)

    def filled(self, restored_from: Sequence[About]) -> None:
        super().filled(restored_from)
        self._is_unknown = self._by_clock

    def _put(self, working: PaneState, found: Mapping[bytes, bytes]) -> None:
        written = self._write(working, found)
        if not self._by_clock or self._is_unknown:
            return
        self._new.update(written)
        if len(self._new) > _MOST_NAMES:
            self._new, self._is_unknown = set(), True

    def _needed(self, batch: pa.RecordBatch) -> set[bytes]:
        return super()._needed(in_each_window(batch, self._whole))

    def _new_portions(self) -> Iterator[Portion]:
        portions = self._open_rows() if self._is_unknown else self._named(sorted(self._new))
        self._new, self._is_unknown = set(), False
        for rows in portions:
            working = self._holding(rows, self.clock)
            assert isinstance(working, TriggeredState)
            fired = working.fire_early(np.arange(len(rows)), 1)
            self._write(working, dict(rows))
            yield Portion(fired, is_settled=True)

    def _named(self, names: Sequence[bytes]) -> Iterator[list[Row]]:
        for start in range(0, len(names), ROWS_AT_ONCE):
            yield list(self._read(names[start : start + ROWS_AT_ONCE]).items())

    def _open_rows(self) -> Iterator[list[Row]]:
        """All rows of windows that are not over for every key group."""
        first = self._shape.fired_until(self.clock.reached.least) + 1
        for group in self._spec.key_groups:
            at, end = pane_key(group, first), group_key(group + 1)
            while rows := self.database.rows(at, end, ROWS_AT_ONCE):
                yield rows
                at = rows[-1][0] + b"\0"
