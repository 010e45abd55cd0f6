"""The columns with the start and end of a window."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.layout import PANE, WINDOW_END, WINDOW_START

Array = Any  # numpy.ndarray
_TIME = pa.timestamp("us", "UTC")
WINDOW_FIELDS = (pa.field(WINDOW_START, _TIME), pa.field(WINDOW_END, _TIME))


def window_columns(starts: Array, ends: Array) -> list[pa.Array]:
    """Those of WINDOW_FIELDS, from milliseconds since 1970."""
    return [pa.array(1000 * bound).cast(_TIME) for bound in (starts, ends)]


def no_window(count: int) -> list[pa.Array]:
    """Those of WINDOW_FIELDS for rows without a time."""
    return [pa.nulls(count, field.type) for field in WINDOW_FIELDS]


def apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.RecordBatch]:
    """Rows of a partial without a time, None for none, and those with one."""
    panes = batch.column(PANE)
    if not panes.null_count:
        return None, batch
    return batch.filter(pc.is_null(panes)), batch.filter(pc.is_valid(panes))
