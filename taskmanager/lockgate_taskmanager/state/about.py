"""The header of a stored piece of keyed state."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lockgate_taskmanager.task.watermarks import MIN_WATERMARK

Ahead = tuple[int, int, int]  # first key group, the one behind the last, and the watermark that they had come to


@dataclass(frozen=True, slots=True)
class About:
    """partial_schema: of the tables that the state folds; owned: key groups of the subtask that wrote it.

    owned is empty in older files. watermark: event time, without the end of the input; purged_until: rows with an event
    time at or before it are gone; ahead: key groups with a later event time; gone: until when windows are dropped, for
    all its key groups and then for some, empty in older files. Times are milliseconds since 1970, MIN_WATERMARK for
    none.
    """

    partial_schema: pa.Schema
    signature: str
    max_parallelism: int
    owned: range = range(0)
    watermark: int = MIN_WATERMARK
    purged_until: int = MIN_WATERMARK
    ahead: tuple[Ahead, ...] = ()
    gone: tuple[Ahead, ...] = ()
