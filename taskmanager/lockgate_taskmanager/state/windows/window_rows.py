"""Partials with a row for each window instead of each pane, for windows with a trigger.

key, pane --> key, window; key, next window ...
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.columns.arrays import numpy_of
from lockgate_taskmanager.state.layout import HASH, PANE
from lockgate_taskmanager.state.store import Merged
from lockgate_taskmanager.state.windows.shape import WindowShape

_APART = 1 << 20  # beyond the bits that choose the key group: the keys of a subtask have only some of these


def in_each_window(batch: pa.RecordBatch, shape: WindowShape) -> pa.RecordBatch:
    """A row for each window that the pane of a row is in, with the start of its last `slide_ms` as pane.

    batch: rows with a time. shape: of the windows.
    """
    panes = numpy_of(batch, PANE)
    last = shape.last_end(panes)
    counts = (last - 1 - panes) // shape.slide_ms + 1
    places = np.repeat(np.arange(len(panes)), counts)
    numbers = np.arange(len(places)) - (np.cumsum(counts) - counts)[places]
    starts = pa.array(last[places] - (numbers + 1) * shape.slide_ms, pa.int64())
    spread = batch.take(pa.array(places, pa.int64()))
    columns = [starts if name == PANE else spread.column(name) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def merged_in_parts(merge: Callable[[pa.Table], Merged], partial: pa.Table, shape: WindowShape) -> Merged:
    """Merges a partial in parts of a bounded number of windows, each with all rows of its keys. shape: of the windows.

    So memory does not grow with the windows of a record, and a window fires once in a merge.
    """
    most = -(-shape.size_ms // shape.slide_ms) * partial.num_rows
    if most <= firing.ROWS_AT_ONCE:
        return merge(partial)
    part_of = np.mod(partial.column(HASH).to_numpy() // _APART, -(-most // firing.ROWS_AT_ONCE))
    merged = [merge(partial.filter(pa.array(part_of == part))) for part in np.unique(part_of)]
    late = [item.late for item in merged if item.late is not None]
    return Merged(
        sum(item.records for item in merged),
        pa.concat_tables([item.changed for item in merged]),
        pa.concat_tables(late) if late else None,
        sum(item.dropped for item in merged),
    )
