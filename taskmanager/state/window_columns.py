"""The columns that say from when to when a window is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from taskmanager.state.layout import WINDOW_END, WINDOW_START

Array = Any  # numpy.ndarray
_TIME = pa.timestamp("us", "UTC")
WINDOW_FIELDS = (pa.field(WINDOW_START, _TIME), pa.field(WINDOW_END, _TIME))


def window_columns(starts: Array, ends: Array) -> list[pa.Array]:
    """Those of WINDOW_FIELDS, from milliseconds since 1970."""
    return [pa.array(1000 * one).cast(_TIME) for one in (starts, ends)]
