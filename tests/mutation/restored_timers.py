"""What a process function keeps of its keys is restored without the times at which they want to be visited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from lockgate_taskmanager.state.rows import row_heap
from lockgate_taskmanager.state.rows.row_store import NEVER, Keys, Rows

_split = row_heap.split


def _without_timers(batch: pa.RecordBatch, key_count: int) -> tuple[Keys, Rows]:
    keys, rows = _split(batch, key_count)
    never = np.full(len(keys), NEVER)
    return keys, replace(rows, event=never, wall=never)


row_heap.split = _without_timers
