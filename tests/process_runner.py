"""What the runner of a process function takes and makes, for tests without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from lockgate_taskmanager.spark.keyed.runner import UNKNOWN, VISITS, Runner


def visits(
    keys: pa.RecordBatch,
    counts: Sequence[int],
    payloads: Sequence[bytes | None] = (),
    watermark: int = UNKNOWN,
    now_ms: int = 0,
) -> pa.RecordBatch:
    """One of each key. payloads: NULL by default."""
    every = len(counts)
    about = [list(payloads) or [None] * every, list(counts), [watermark] * every, [now_ms] * every]
    columns = [*keys.columns, *map(pa.array, about, VISITS.types)]
    return pa.record_batch(columns, [*keys.schema.names, *VISITS.names])


def made(runner: Runner, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of all batches; each has the columns of its kind."""
    return rows_of(runner.run(iter(batches)))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
